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

    /// <summary>The progress of packing, tuning or advising. Set <see cref="Stop"/> to end
    /// it.</summary>
    public sealed class ProgressEventArgs : EventArgs
    {
        /// <summary>Number of files, trials, products or calls so far.</summary>
        public long Done { get; internal set; }

        /// <summary>Their number; null if it is not known.</summary>
        public long? Total { get; internal set; }

        /// <summary>The task that was done or is being done; empty if there is nothing to report.</summary>
        public string Text { get; internal set; }

        public bool Stop { get; set; }

        [Obsolete("use Total")]
        public long? Batches => Total;
    }

    /// A call that reports its progress. An exception of the program's handler must not cross native
    /// code.
    internal sealed class Reporting : Progress
    {
        /// Returns whether the call goes on.
        internal delegate bool Handler(long done, long? total, string text);

        private readonly Handler handler;
        private Exception failure;

        private Reporting(Handler handler) { this.handler = handler; }

        public override bool report(long done, long total, string text)
        {
            try
            {
                return handler(done, total < 0 ? (long?)null : total, text);
            }
            catch (Exception error)
            {
                failure = error;
                return false;
            }
        }

        /// Returns what calls <paramref name="handler"/>; null if that is null.
        internal static Handler Of(object sender, EventHandler<EvaluationEventArgs> handler)
        {
            if (handler == null) return null;
            return (done, total, text) =>
            {
                var told = new EvaluationEventArgs { Done = done, Batches = total };
                handler(sender, told);
                return !told.Stop;
            };
        }

        internal static Handler Of(object sender, EventHandler<ProgressEventArgs> handler)
        {
            if (handler == null) return null;
            return (done, total, text) =>
            {
                var told = new ProgressEventArgs { Done = done, Total = total, Text = text };
                handler(sender, told);
                return !told.Stop;
            };
        }

        /// Returns the result of <paramref name="call"/>. If an exception of the handler ended the
        /// call, throws it; otherwise <paramref name="failure"/> receives it.
        internal static T Run<T>(Handler handler, Func<Progress, T> call, out Exception failure)
        {
            failure = null;
            if (handler == null) return call(null);
            using (var told = new Reporting(handler))
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
