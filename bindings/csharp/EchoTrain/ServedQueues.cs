using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    /// The queues of calls that threads of this assembly serve. At the end of the process nobody
    /// serves them any more. Waiting calls must then fail; otherwise the finalizers of pipelines
    /// and runs that were not disposed of would wait for them. What makes the calls is cancelled
    /// first, because it would take their failures for its data's.
    internal static class ServedQueues
    {
        private static readonly Dictionary<CallQueue, Action> served = new Dictionary<CallQueue, Action>();

        static ServedQueues()
        {
            AppDomain.CurrentDomain.ProcessExit += (sender, nothing) =>
            {
                lock (served)
                    foreach (KeyValuePair<CallQueue, Action> each in served)
                    {
                        each.Value();
                        each.Key.close();
                    }
            };
        }

        internal static void Add(CallQueue queue, Action cancel)
        {
            lock (served) served.Add(queue, cancel);
        }

        internal static void Remove(CallQueue queue)
        {
            lock (served) served.Remove(queue);
        }

        private const int StackOfCalls = 32768;  // more than the library's side of a call takes, in bytes
        private static readonly bool isMono = Type.GetType("Mono.Runtime") != null;

        /// Overwrites what calls have left on this thread's stack, or an earlier thread whose stack it
        /// got. Mono's collector takes every word on a stack for a reference, and this thread waits most
        /// of the time, at the same depth: it might keep an unreachable pipeline for as long as it lives.
        internal static void ForgetStack()
        {
            if (isMono) ClearBelow();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private static void ClearBelow()
        {
            Span<byte> below = stackalloc byte[StackOfCalls];
            below.Clear();
        }

        /// Starts a thread that serves a queue. If the system has no thread to give, throws an
        /// EchoTrainException of the code OutOfMemory, as the library does for its own threads.
        internal static void StartThread(string name, ThreadStart serve)
        {
            try
            {
                new Thread(() => { ForgetStack(); serve(); }) { IsBackground = true, Name = name }.Start();
            }
            catch (SystemException error)  // OutOfMemoryException; Mono throws others, too
            {
                throw new EchoTrainException(ErrorCode.OutOfMemory, "a thread '" + name + "' could not be started (" + error.Message +
                    "): the process has reached its limit of memory or threads (ulimit -v, ulimit -u); raise it", error);
            }
        }
    }
}
