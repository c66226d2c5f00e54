package io.echotrain;

import io.echotrain.internal.LogLine;
import io.echotrain.internal.LogQueue;

/**
 * Passes the library's log lines to {@link System.Logger}: those about bad records to the logger
 * "io.echotrain.badRecords", all others to "io.echotrain". What the library calls information has the
 * level DEBUG, because Java prints lines of the level INFO unless it is configured otherwise.
 */
final class Log {
  private static final int ABOUT_BAD_RECORD = 1;
  private static final System.Logger.Level[] LEVELS = {System.Logger.Level.TRACE, System.Logger.Level.DEBUG,
      System.Logger.Level.WARNING, System.Logger.Level.ERROR};

  private Log() {}

  /** Starts the thread that reads the lines. Called once, when the library has been loaded. */
  static void start() {
    LogQueue.open();
    Thread reader = new Thread(Log::read, "echotrain-log");
    reader.setDaemon(true);
    reader.start();
    try {
      Runtime.getRuntime().addShutdownHook(new Thread(() -> {
        LogQueue.close();  // the reader ends after the lines that are left
        try {
          reader.join(1000);
        } catch (InterruptedException interrupted) {
          Thread.currentThread().interrupt();
        }
      }, "echotrain-log-end"));
    } catch (IllegalStateException ending) {
      LogQueue.close();  // the program is about to end: nobody waits for the reader
    }
  }

  private static void read() {
    while (true) {
      LogLine line = LogQueue.next();
      try {
        if (!line.getValid()) return;
        String name = line.getSubject() == ABOUT_BAD_RECORD ? "io.echotrain.badRecords" : "io.echotrain";
        System.getLogger(name).log(LEVELS[line.getLevel()], line.getMessage());
      } catch (Throwable failure) {
        // A handler of the program failed; the next line may fare better.
      } finally {
        line.delete();
      }
    }
  }
}
