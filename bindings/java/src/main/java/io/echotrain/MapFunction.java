package io.echotrain;

/**
 * A function of the program as a stage of a pipeline. Several threads of the pipeline call it, each
 * with one item: a sample, or a whole batch after the stage {@code batch}. It reads the item's
 * fields and sets new ones. The item is valid only during the call. An exception makes the record a
 * bad one, which {@code on_error} deals with.
 */
@FunctionalInterface
public interface MapFunction {
  void apply(Batch item) throws Exception;
}
