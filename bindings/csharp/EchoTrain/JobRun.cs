using System;
using System.Collections;
using System.Collections.Generic;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>A running job. Enumerating it, which is possible once, trains event by event; the
    /// last event is of kind End. The run holds its trainer and the folder output.dir until the
    /// loop over it ends, also if it is left early, or until <see cref="Dispose"/>. Any thread may
    /// call <see cref="Stop"/> and Dispose.</summary>
    public sealed class JobRun : IEnumerable<JobEvent>, IDisposable
    {
        private readonly TrainerHandle trainer;
        private readonly CancellationToken cancellation;
        private readonly EventHandler<EvaluationEventArgs> evaluation;
        private readonly LentTransport.Failures failures;
        private readonly object gate = new object();
        private bool enumerated, disposed;

        internal JobRun(TrainerHandle trainer, CancellationToken cancellation, EventHandler<EvaluationEventArgs> evaluation,
                        LentTransport.Failures failures)
        {
            this.failures = failures;
            this.trainer = trainer;
            this.cancellation = cancellation;
            this.evaluation = evaluation;
        }

        /// <summary>Runs the job. Leaving the loop ends the run, and progress since the newest
        /// checkpoint is lost. To keep it, call <see cref="Stop"/> and read to the last
        /// event.</summary>
        public IEnumerator<JobEvent> GetEnumerator()
        {
            lock (gate)
            {
                if (disposed || enumerated)
                    throw new EchoTrainException(ErrorCode.State, "this run " + (disposed ? "is over" : "is enumerated already") +
                        "; Job.Run begins another", null);
                enumerated = true;
            }
            return Events();
        }

        IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

        private IEnumerator<JobEvent> Events()
        {
            using (this)
            using (cancellation.Register(Stop))
            {
                JobEvent current;
                do
                {
                    Exception failure = null;  // the handler's; thrown after this event
                    using (Event raw = failures.Explained(
                        () => Evaluation.Run(this, evaluation, trainer.next_event, out failure)))
                        current = new JobEvent(raw);
                    yield return current;
                    Evaluation.ThrowAgain(failure);
                } while (current.Kind != JobEventKind.End);
            }
        }

        /// <summary>Does the same as <see cref="Trainer.SetHyperparameter"/>, between two events.
        /// If several processes train together, all make the same call after the same event of kind
        /// evaluation or checkpoint.</summary>
        public void SetHyperparameter(string name, double value) => trainer.set_hyperparameter(name, value);

        /// <summary>Asks the run to end soon and in order. Does nothing if it is over.</summary>
        public void Stop()
        {
            lock (gate)
                if (!disposed) trainer.stop();
        }

        /// <summary>Ends the run and releases its trainer and its folder. A thread that is waiting
        /// for an event gets it first.</summary>
        public void Dispose()
        {
            lock (gate)
            {
                if (disposed) return;
                trainer.stop();
                disposed = true;
                trainer.close();
            }
        }
    }
}
