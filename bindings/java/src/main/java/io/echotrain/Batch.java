package io.echotrain;

import io.echotrain.internal.BatchHandle;
import io.echotrain.internal.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.ShortBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/**
 * Named tensors: a batch, or in a {@link MapFunction} a sample. After {@link #close()} its methods
 * throw; buffers that were taken before stay readable, because they keep their memory alive. One
 * thread may close a batch while another uses it: a call in progress ends first.
 */
public final class Batch implements AutoCloseable {
  // The garbage collector does not see the native memory that it would free, so it is asked to run
  // when there is more of it than this.
  private static final long BUFFER_LIMIT = Long.getLong("echotrain.buffers.limit", 512L << 20);
  private static final AtomicLong bufferBytes = new AtomicLong();

  static { Natives.load(); }  // a batch may be the first object that a program makes

  private BatchHandle handle;  // null once the call of a map function is over

  /** Creates an empty batch, for a trainer without a pipeline. */
  public Batch() { this(new BatchHandle(), true); }

  Batch(BatchHandle handle, boolean owned) {
    this.handle = handle;
    if (owned) Natives.free(handle, handle.release());
  }

  // Calls that use the handle hold the monitor. So neither close() nor the end of a map function
  // can interrupt them, and the batch is not collected meanwhile.
  private BatchHandle handle() {
    if (handle == null) {
      throw new EchoTrainException(EchoTrainException.Code.STATE,
          "the item of a map function is valid during its call only", null);
    }
    return handle;
  }

  /** Returns the result of {@code use}; the handle stays valid during the call. */
  synchronized <T> T with(Function<BatchHandle, T> use) { return use.apply(handle()); }

  synchronized void expire() { handle = null; }

  /** Returns the names of the fields. */
  public synchronized List<String> fields() { return new ArrayList<>(Arrays.asList(handle().fields())); }

  /** Returns the field's extents, outermost first: [N, H, W, C]. */
  public synchronized long[] shape(String field) {
    Tensor tensor = handle().tensor(field);
    try {
      return tensor.shape();
    } finally {
      tensor.delete();
    }
  }

  public synchronized DType dtype(String field) {
    Tensor tensor = handle().tensor(field);
    try {
      return DType.values()[tensor.dtype()];
    } finally {
      tensor.delete();
    }
  }

  /**
   * Returns the field's bytes without a copy, as a direct, read-only buffer in native order. Fails
   * with the code UNSUPPORTED if there are 2 GiB or more, which no buffer holds.
   */
  public synchronized ByteBuffer buffer(String field) { return bufferOf(handle().tensor(field)); }

  // Takes ownership of the tensor, which lives as long as the buffer.
  private static ByteBuffer bufferOf(Tensor tensor) {
    ByteBuffer memory;
    try {
      memory = tensor.memory();
    } catch (EchoTrainException error) {
      tensor.delete();
      throw error;
    }
    long bytes = memory.capacity();
    if (bufferBytes.addAndGet(bytes) > BUFFER_LIMIT) System.gc();
    Natives.free(memory, () -> {
      tensor.delete();
      bufferBytes.addAndGet(-bytes);
    });
    return memory.asReadOnlyBuffer().order(ByteOrder.nativeOrder());
  }

  /** Returns a field of {@link DType#F32}. */
  public FloatBuffer floats(String field) { return typed(field, DType.F32).asFloatBuffer(); }

  /** Returns a field of {@link DType#I32}. */
  public IntBuffer ints(String field) { return typed(field, DType.I32).asIntBuffer(); }

  /** Returns a field of {@link DType#U16}; {@code Short.toUnsignedInt} converts a value. */
  public ShortBuffer shorts(String field) { return typed(field, DType.U16).asShortBuffer(); }

  private synchronized ByteBuffer typed(String field, DType wanted) {
    Tensor tensor = handle().tensor(field);
    DType found = DType.values()[tensor.dtype()];
    if (found != wanted) {
      tensor.delete();
      throw new IllegalArgumentException("field '" + field + "' is " + found + ", not " + wanted);
    }
    return bufferOf(tensor);
  }

  /**
   * Sets a field to a copy of {@code values}, row-major: as many as the shape needs, or one if
   * there is no shape.
   */
  public Batch set(String field, float[] values, long... shape) {
    ByteBuffer buffer = direct(field, Objects.requireNonNull(values, "values").length, DType.F32, shape);
    buffer.asFloatBuffer().put(values);
    return set(field, DType.F32, buffer, shape);
  }

  /** Sets a field to a copy of {@code values}, row-major. */
  public Batch set(String field, int[] values, long... shape) {
    ByteBuffer buffer = direct(field, Objects.requireNonNull(values, "values").length, DType.I32, shape);
    buffer.asIntBuffer().put(values);
    return set(field, DType.I32, buffer, shape);
  }

  /** Sets a field to a copy of {@code values}, row-major. */
  public Batch set(String field, byte[] values, long... shape) {
    ByteBuffer buffer = direct(field, Objects.requireNonNull(values, "values").length, DType.U8, shape);
    buffer.duplicate().put(values);
    return set(field, DType.U8, buffer, shape);
  }

  /**
   * Sets a field of {@link DType#U16} to a copy of {@code values}, taken as unsigned, row-major.
   */
  public Batch set(String field, short[] values, long... shape) {
    ByteBuffer buffer = direct(field, Objects.requireNonNull(values, "values").length, DType.U16, shape);
    buffer.asShortBuffer().put(values);
    return set(field, DType.U16, buffer, shape);
  }

  /**
   * Sets a field to a copy of the remaining bytes of a direct buffer in native order: as many as
   * the shape needs.
   */
  public synchronized Batch set(String field, DType dtype, ByteBuffer direct, long... shape) {
    Objects.requireNonNull(dtype, "dtype");
    if (!Objects.requireNonNull(direct, "direct").isDirect()) throw new IllegalArgumentException("field '" + field + "': not a direct buffer");
    long wanted = size(field, shape, dtype.bytes());
    if (wanted != direct.remaining()) {
      throw new IllegalArgumentException("field '" + field + "': " + Arrays.toString(shape) + " of " + dtype + " needs "
          + wanted + " bytes; there are " + direct.remaining());
    }
    handle().set_direct(field, dtype.ordinal(), shape, direct.slice());
    return this;
  }

  public synchronized void remove(String field) { handle().remove(field); }

  /** Number of samples in the batch; 0 for a single sample of a pipeline without a batch stage. */
  public synchronized int samples() { return handle().samples(); }

  /** Number of samples that were read from upstream for this batch. */
  public synchronized int fresh() { return handle().fresh(); }

  /** Number of samples that an echo stage repeated. */
  public synchronized int echoed() { return handle().echoed(); }

  /** Number of distinct samples in the batch. */
  public synchronized int unique() { return handle().unique(); }

  /**
   * Mean age of the samples: how many fresh samples echo stages have received since they received
   * this one.
   */
  public synchronized double meanAge() { return handle().mean_age(); }

  /** 0 for a fresh sample, n for its n-th echo. */
  public synchronized int replica() { return handle().replica(); }

  /** The number of the (first) sample in the source order of its epoch. */
  public synchronized long ordinal() { return handle().ordinal(); }

  /** The epoch; only in a {@link MapFunction}. */
  public synchronized long epoch() { return handle().epoch(); }

  @Override
  public synchronized void close() { if (handle != null) handle.close(); }

  /** Lists the fields with their types and shapes. */
  @Override
  public synchronized String toString() {
    if (handle == null || handle.is_closed()) return "Batch(closed)";
    StringBuilder out = new StringBuilder("Batch(");
    for (String field : fields()) {
      if (out.length() > 6) out.append(", ");
      out.append(field).append(": ").append(dtype(field)).append(' ').append(Arrays.toString(shape(field)));
    }
    return out.append(')').toString();
  }

  private static ByteBuffer direct(String field, int values, DType dtype, long[] shape) {
    long wanted = size(field, shape, 1);
    if (wanted != values) {
      throw new IllegalArgumentException("field '" + field + "': " + Arrays.toString(shape) + " needs " + wanted
          + " values; there are " + values);
    }
    int bytes = Math.multiplyExact(dtype.bytes(), values);
    ByteBuffer buffer = ByteBuffer.allocateDirect(Math.max(bytes, 1));  // 0 bytes would have no address
    return buffer.limit(bytes).order(ByteOrder.nativeOrder());
  }

  private static long size(String field, long[] shape, int bytes) {
    long size = bytes;
    try {
      for (long extent : Objects.requireNonNull(shape, "shape")) size = Math.multiplyExact(size, extent);
    } catch (ArithmeticException overflow) {
      throw new IllegalArgumentException("field '" + field + "': an array of shape " + Arrays.toString(shape)
          + " is larger than any memory");
    }
    return size;
  }
}
