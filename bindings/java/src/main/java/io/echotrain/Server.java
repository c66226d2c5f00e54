package io.echotrain;

import io.echotrain.internal.ServerHandle;
import io.echotrain.internal.ServerStatus;
import java.util.Objects;

/**
 * One shard of a job's parameter server: holds its part of the parameters, and serves the workers, which are runs of the job, on
 * threads of its own. The job's section {@code parallel} has the algorithm {@code downpour} or {@code easgd}, and {@code servers} such
 * shards. {@code try (Server server = new Server(job, 0)) { while (!server.await(1)) {} }} serves until the last worker has
 * finished. Used by one thread at a time, but for {@link #stop} and {@link #close}.
 */
public final class Server implements AutoCloseable {
  /** What there is to tell of a server. */
  public static final class Status {
    /** Workers that are here. */
    public final long workers;
    /** Workers that have come since the start. */
    public final long joined;
    /** Of the workers that left, those that had come to their end. */
    public final long finished;
    /** Updates that were applied. */
    public final long updates;

    Status(ServerStatus s) {
      workers = s.getWorkers();
      joined = s.getJoined();
      finished = s.getFinished();
      updates = s.getUpdates();
    }
  }

  private final ServerHandle handle;

  /** {@code shard} counts from 0. Returns before any worker has come. */
  public Server(Job job, int shard) {
    handle = new ServerHandle(Objects.requireNonNull(job, "job").handle, shard);
    Natives.free(this, handle::delete);
  }

  /**
   * Waits until the last worker has finished, or the server is stopped, for so many seconds at most. Whether that has happened. Fails
   * with the code RANK_LOST where no worker has come within {@code parallel.timeout}, or none after the last one was lost.
   */
  public boolean await(double seconds) { return handle.ended_within(seconds); }

  public Status status() {
    ServerStatus s = handle.status();
    try {
      return new Status(s);
    } finally {
      s.delete();
    }
  }

  /** Ends it: workers see that the shard is lost. */
  public void stop() { handle.stop(); }

  /** Stops it and lets go of its part of the parameters. */
  @Override
  public void close() { handle.close(); }
}
