using System;
using System.IO;
using System.Linq;
using System.Net.Sockets;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    /// Adapts a Transport to the library's interface. Its calls are queued, and threads of this
    /// assembly serve the queue (as for the functions of a Pipeline). There are two threads,
    /// because an abort comes while another call waits.
    internal sealed class LentTransport
    {
        /// Keeps the first exception that the transports of a run threw; the library's later errors
        /// repeat it.
        internal sealed class Failures
        {
            private readonly object gate = new object();
            private Exception first;
            private string told;

            internal string Add(Exception failure)
            {
                string text = EchoTrainException.Passable(
                    failure is EchoTrainException ? failure.Message : failure.GetType().Name + ": " + failure.Message);
                lock (gate)
                {
                    if (first != null) return text;
                    first = failure;
                    told = text.Substring(0, Math.Min(text.Length, 250));
                }
                return text;
            }

            /// Returns the result of <paramref name="call"/>. An error of the library has the
            /// transport's exception as its inner exception if that has ended the run.
            internal T Explained<T>(Func<T> call)
            {
                try
                {
                    return call();
                }
                catch (EchoTrainException error)
                {
                    lock (gate)
                        if (first == null || !error.Message.Contains(told)) throw;
                    throw new EchoTrainException(error.Code, error.Message, first);
                }
            }
        }

        private const int Threads = 2;
        private const double PatienceSeconds = 0.1;  // how soon the end of the process is noticed

        private readonly Transport transport;
        private readonly Failures failures;
        private readonly CallQueue queue = new CallQueue();

        private LentTransport(Transport transport, Failures failures)
        {
            this.transport = transport;
            this.failures = failures;
        }

        /// Returns the library's side of <paramref name="transport"/>; the caller passes on its
        /// ownership.
        internal static Native.Transport Lend(Transport transport, Failures failures)
        {
            var lent = new LentTransport(transport, failures);
            ServedQueues.Add(lent.queue, () => { });  // its run ends with an error anyway
            try
            {
                for (int i = 0; i < Threads; ++i) ServedQueues.StartThread("EchoTrain transport", lent.Serve);
            }
            catch (EchoTrainException)
            {
                lent.queue.close();
                ServedQueues.Remove(lent.queue);
                throw;
            }
            return lent.queue.lend();
        }

        private void Serve()
        {
            while (!queue.is_closed())
                using (Call call = queue.take(PatienceSeconds))
                {
                    if (call == null) continue;
                    TransportCall asked = call.transport_call();
                    bool last = asked.operation() == (int)TransportCall.Operation.close;
                    Run(asked);
                    call.finish("");
                    ServedQueues.ForgetStack();
                    if (last) queue.close();
                }
            ServedQueues.Remove(queue);
        }

        private void Run(TransportCall call)
        {
            try
            {
                double timeout = call.timeout();
                if (timeout > 0) transport.Timeout = timeout;  // 0: an abort
                Do(call);
            }
            catch (Exception failure)
            {
                var missing = new Extents();
                if (failure is RankLostException lost)
                    foreach (int rank in lost.Missing) missing.Add(rank);
                call.fail(StatusOf(failure), failures.Add(failure), missing);
            }
        }

        private static int StatusOf(Exception failure)
        {
            if (failure is EchoTrainException known) return (int)known.Code;
            bool lost = failure is TimeoutException || failure is SocketException || failure is IOException;
            return (int)(lost ? ErrorCode.RankLost : ErrorCode.Callback);
        }

        private void Do(TransportCall call)
        {
            var number = (TransportNumber)call.number();
            var reduction = (TransportReduction)call.reduction();
            switch ((TransportCall.Operation)call.operation())
            {
                case TransportCall.Operation.all_reduce: transport.AllReduce(Output(call), number, reduction); break;
                case TransportCall.Operation.reduce_scatter:
                    transport.ReduceScatter(Input(call), call.parts().ToArray(), Output(call), number, reduction);
                    break;
                case TransportCall.Operation.all_gather:
                    transport.AllGather(Input(call), call.parts().ToArray(), Output(call));
                    break;
                case TransportCall.Operation.broadcast: transport.Broadcast(Output(call), call.peer()); break;
                case TransportCall.Operation.barrier: transport.Barrier(); break;
                case TransportCall.Operation.send: transport.Send(Input(call), call.peer(), call.tag()); break;
                case TransportCall.Operation.receive: transport.Receive(Output(call), call.peer(), call.tag()); break;
                case TransportCall.Operation.split: Split(call); break;
                case TransportCall.Operation.abort: transport.Abort(call.reason()); break;
                default: transport.Close(); break;
            }
        }

        private void Split(TransportCall call)
        {
            Transport part = transport.Split(call.colour(), call.key());
            if (part == null && call.colour() >= 0)
                throw new InvalidOperationException(
                    transport.GetType().Name + ".Split returned null for the colour " + call.colour());
            if (part != null) call.give(part.Rank, part.Size, Lend(part, failures));
        }

        private static unsafe ReadOnlySpan<byte> Input(TransportCall call) =>
            new ReadOnlySpan<byte>((void*)call.input(), checked((int)call.input_bytes()));

        private static unsafe Span<byte> Output(TransportCall call) =>
            new Span<byte>((void*)call.output(), checked((int)call.output_bytes()));
    }
}
