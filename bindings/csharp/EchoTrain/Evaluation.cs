using System;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>The arguments of <see cref="Trainer.EvaluationProgressed"/>, after each batch of an
    /// evaluation. Set <see cref="Stop"/> to end the evaluation.</summary>
    public sealed class EvaluationEventArgs : EventArgs
    {
        /// <summary>Number of batches that are done; 0 while the rest of an epoch that has begun is
        /// skipped.</summary>
        public long Done { get; internal set; }

        /// <summary>The number of batches; null if it is not known.</summary>
        public long? Batches { get; internal set; }

        public bool Stop { get; set; }
    }

    /// A call that evaluates, and its handler. An exception of the handler must not cross native
    /// code.
    internal sealed class Evaluation : Progress
    {
        private readonly object sender;
        private readonly EventHandler<EvaluationEventArgs> handler;
        private Exception failure;

        private Evaluation(object sender, EventHandler<EvaluationEventArgs> handler)
        {
            this.sender = sender;
            this.handler = handler;
        }

        public override bool report(long done, long batches)
        {
            try
            {
                var told = new EvaluationEventArgs { Done = done, Batches = batches < 0 ? (long?)null : batches };
                handler(sender, told);
                return !told.Stop;
            }
            catch (Exception error)
            {
                failure = error;
                return false;
            }
        }

        /// Returns the result of <paramref name="call"/>. If an exception of the handler ended the
        /// call, throws it; otherwise <paramref name="failure"/> receives it.
        internal static T Run<T>(object sender, EventHandler<EvaluationEventArgs> handler, Func<Progress, T> call,
                                 out Exception failure)
        {
            failure = null;
            if (handler == null) return call(null);
            using (var told = new Evaluation(sender, handler))
            {
                try
                {
                    T result = call(told);
                    failure = told.failure;
                    return result;
                }
                catch (EchoTrainException error) when (error.Code == ErrorCode.Cancelled && told.failure != null)
                {
                    ThrowAgain(told.failure);
                    throw;
                }
            }
        }

        internal static void ThrowAgain(Exception failure)
        {
            if (failure != null) System.Runtime.ExceptionServices.ExceptionDispatchInfo.Capture(failure).Throw();
        }
    }
}
