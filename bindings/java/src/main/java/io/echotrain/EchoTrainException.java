package io.echotrain;

/** A failed call of the library. {@link #code()} tells its kind. */
public class EchoTrainException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The status codes of the C API. */
  public enum Code {
    INVALID_ARGUMENT(-1), NOT_FOUND(-2), IO(-3), CORRUPT_DATA(-4), OUT_OF_MEMORY(-5), NO_DEVICE(-6),
    DEVICE(-7), DEVICE_LOST(-8), CANCELLED(-9), STATE(-10), UNSUPPORTED(-11), INTERNAL(-12),
    /** A {@link MapFunction} failed; its exception is the cause. */
    CALLBACK(-13),
    /** A loss or gradient was NaN or infinite; the message names what produced it. */
    NOT_FINITE(-14),
    /** A process of the group is dead, frozen or unreachable; the message says which. */
    RANK_LOST(-15);

    private final int status;

    Code(int status) { this.status = status; }

    int status() { return status; }

    static Code of(int status) {
      for (Code code : values()) {
        if (code.status == status) return code;
      }
      return INTERNAL;
    }
  }

  private final Code code;

  public EchoTrainException(int status, String message) { this(Code.of(status), message, null); }

  EchoTrainException(Code code, String message, Throwable cause) {
    super(message, cause);
    this.code = code;
  }

  public Code code() { return code; }
}
