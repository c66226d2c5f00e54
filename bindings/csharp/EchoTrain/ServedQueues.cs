using System;
using System.Collections.Generic;
using EchoTrain.Native;

namespace EchoTrain
{
    /// The queues of calls that threads of this assembly serve. At the end of the process nobody
    /// serves them any more. Waiting calls must then fail; otherwise the finalizers of pipelines
    /// and runs that were not disposed of would wait for them.
    internal static class ServedQueues
    {
        private static readonly HashSet<CallQueue> served = new HashSet<CallQueue>();

        static ServedQueues()
        {
            AppDomain.CurrentDomain.ProcessExit += (sender, nothing) =>
            {
                lock (served)
                    foreach (CallQueue queue in served) queue.close();
            };
        }

        internal static void Add(CallQueue queue)
        {
            lock (served) served.Add(queue);
        }

        internal static void Remove(CallQueue queue)
        {
            lock (served) served.Remove(queue);
        }
    }
}
