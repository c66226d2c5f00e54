package io.echotrain;

/**
 * A function of the program as a stage of a pipeline. It is called from several of the pipeline's
 * threads with one item at a time (a sample, or after {@code batch} a whole batch), reads its fields
 * and sets new ones. The item is valid during the call only. What it throws fails the record, as
 * {@code on_error} says.
 */
@FunctionalInterface
public interface MapFunction {
  void apply(Batch item) throws Exception;
}
