using System;
using System.Collections.Generic;
using EchoTrain.Native;

namespace EchoTrain
{
    /// Queues of calls that threads of this assembly serve. At the end of the process nobody does any more: calls that wait must fail
    /// then, or the finalizers of pipelines and runs that were not disposed of wait for them.
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
