package io.echotrain;

/** Element types of fields, in the order of the C API. */
public enum DType {
  U8(1), I32(4), F32(4), U16(2);

  private final int bytes;

  DType(int bytes) { this.bytes = bytes; }

  public int bytes() { return bytes; }
}
