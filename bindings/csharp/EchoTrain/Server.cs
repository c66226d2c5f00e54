using System;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>The state of a shard of a parameter server.</summary>
    public sealed class ServerStatus
    {
        /// <summary>Number of workers that are present.</summary>
        public long Workers { get; }

        /// <summary>Number of workers that have joined since the start.</summary>
        public long Joined { get; }

        /// <summary>Number of workers that left because they had finished.</summary>
        public long Finished { get; }

        /// <summary>Number of updates applied so far.</summary>
        public long Updates { get; }

        internal ServerStatus(Native.ServerStatus from)
        {
            Workers = from.workers;
            Joined = from.joined;
            Finished = from.finished;
            Updates = from.updates;
        }
    }

    /// <summary>One shard of a job's parameter server. It holds its part of the parameters, and
    /// serves the workers, which are runs of the job, on its own threads. In the job's section
    /// parallel the algorithm is downpour or easgd, and servers is the number of shards. A server
    /// serves one thread at a time, except for <see cref="Stop"/> and
    /// <see cref="Dispose"/>.</summary>
    /// <example><code>using (var server = new Server(job, 0)) while (!server.Wait(1)) { }</code></example>
    public sealed class Server : IDisposable
    {
        private readonly ServerHandle handle;

        /// <summary>Starts a shard; <paramref name="shard"/> counts from 0. Returns before any
        /// worker has come.</summary>
        public Server(Job job, int shard = 0)
        {
            if (job == null) throw new ArgumentNullException(nameof(job));
            handle = new ServerHandle(job.Handle, shard);
        }

        /// <summary>Waits until the last worker has finished or the server is stopped, for at most
        /// that many seconds. Returns whether that has happened. Fails with ErrorCode.RankLost if
        /// no worker came within parallel.timeout, or none after the last one was lost.</summary>
        public bool Wait(double seconds) => handle.ended_within(seconds);

        public ServerStatus Status
        {
            get
            {
                using (Native.ServerStatus status = handle.status()) return new ServerStatus(status);
            }
        }

        /// <summary>Stops the shard; to workers it is lost.</summary>
        public void Stop() => handle.stop();

        /// <summary>Stops the shard and releases its part of the parameters.</summary>
        public void Dispose() => handle.close();
    }
}
