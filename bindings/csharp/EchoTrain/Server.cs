using System;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>What there is to tell of a parameter server's shard.</summary>
    public sealed class ServerStatus
    {
        /// <summary>Workers that are here.</summary>
        public long Workers { get; }

        /// <summary>Workers that have come since the start.</summary>
        public long Joined { get; }

        /// <summary>Of the workers that left, those that had come to their end.</summary>
        public long Finished { get; }

        /// <summary>Updates that were applied.</summary>
        public long Updates { get; }

        internal ServerStatus(Native.ServerStatus from)
        {
            Workers = from.workers;
            Joined = from.joined;
            Finished = from.finished;
            Updates = from.updates;
        }
    }

    /// <summary>One shard of a job's parameter server: holds its part of the parameters, and serves the workers, which are runs of
    /// the job, on threads of its own. The job's section parallel has the algorithm downpour or easgd, and as many shards as servers
    /// says. Used by one thread at a time, but for <see cref="Stop"/> and <see cref="Dispose"/>.</summary>
    /// <example><code>using (var server = new Server(job, 0)) while (!server.Wait(1)) { }</code></example>
    public sealed class Server : IDisposable
    {
        private readonly ServerHandle handle;

        /// <summary><paramref name="shard"/> counts from 0. Returns before any worker has come.</summary>
        public Server(Job job, int shard = 0)
        {
            if (job == null) throw new ArgumentNullException(nameof(job));
            handle = new ServerHandle(job.Handle, shard);
        }

        /// <summary>Waits until the last worker has finished, or the server is stopped, for so many seconds at most. Whether that
        /// has happened. Fails with ErrorCode.RankLost where no worker has come within parallel.timeout, or none after the last
        /// one was lost.</summary>
        public bool Wait(double seconds) => handle.ended_within(seconds);

        public ServerStatus Status
        {
            get
            {
                using (Native.ServerStatus status = handle.status()) return new ServerStatus(status);
            }
        }

        /// <summary>Ends it: workers see that the shard is lost.</summary>
        public void Stop() => handle.stop();

        /// <summary>Stops it and lets go of its part of the parameters.</summary>
        public void Dispose() => handle.close();
    }
}
