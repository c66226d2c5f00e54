package io.echotrain;

import io.echotrain.internal.ServerHandle;
import io.echotrain.internal.ServerStatus;
import java.util.Objects;

/**
 * One shard of a job's parameter server. It holds its part of the parameters, and serves the
 * workers, which are runs of the job, on its own threads. In the job's section {@code parallel} the
 * algorithm is {@code downpour} or {@code easgd}, and {@code servers} is the number of shards.
 * {@code try (Server server = new Server(job, 0)) { while (!server.await(1)) {} }} serves until the
 * last worker has finished. A server serves one thread at a time, except for {@link #stop} and
 * {@link #close}.
 */
public final class Server implements AutoCloseable {
  /** The state of a server. */
  public static final class Status {
    /** Number of workers that are present. */
    public final long workers;
    /** Number of workers that have joined since the start. */
    public final long joined;
    /** Number of workers that left because they had finished. */
    public final long finished;
    /** Number of updates applied so far. */
    public final long updates;

    Status(ServerStatus s) {
      workers = s.getWorkers();
      joined = s.getJoined();
      finished = s.getFinished();
      updates = s.getUpdates();
    }
  }

  private final ServerHandle handle;

  /** Starts a shard; {@code shard} counts from 0. Returns before any worker has come. */
  public Server(Job job, int shard) {
    handle = new ServerHandle(Objects.requireNonNull(job, "job").handle, shard);
    Natives.free(handle, handle.release());
  }

  /**
   * Waits until the last worker has finished or the server is stopped, for at most that many
   * seconds. Returns whether that has happened. Fails with the code RANK_LOST if no worker came
   * within {@code parallel.timeout}, or none after the last one was lost.
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

  /** Stops the shard; to workers it is lost. */
  public void stop() { handle.stop(); }

  /** Stops the shard and releases its part of the parameters. */
  @Override
  public void close() { handle.close(); }
}
