using System;
using System.Collections;
using System.Collections.Generic;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>A running job. Enumerating it, which is possible once, trains event by event; the
    /// last event is of kind End. The run holds the folder output.dir until the loop over it ends,
    /// also if it is left early, or until <see cref="Dispose"/>. Any thread may call <see
    /// cref="Stop"/> and Dispose.
    ///
    /// A run and its trainer serve one thread at a time, together: a call on one of them during a
    /// call of another thread on either fails with <see cref="ErrorCode.State"/>.</summary>
    public sealed class JobRun : IEnumerable<JobEvent>, IDisposable
    {
        private readonly RunHandle handle;
        private readonly Device device;
        private readonly CancellationToken cancellation;
        private readonly EventHandler<EvaluationEventArgs> evaluation;
        private readonly LentTransport.Failures failures;
        private readonly object gate = new object();
        private bool enumerated, disposed;
        private Trainer trainer;

        internal JobRun(RunHandle handle, Device device, CancellationToken cancellation,
                        EventHandler<EvaluationEventArgs> evaluation, LentTransport.Failures failures)
        {
            this.failures = failures;
            this.handle = handle;
            this.device = device;
            this.cancellation = cancellation;
            this.evaluation = evaluation;
        }

        /// <summary>Runs the job. Leaving the loop ends the run, and progress since the newest
        /// checkpoint is lost. To keep it, call <see cref="Stop"/> and read to the last
        /// event.</summary>
        public IEnumerator<JobEvent> GetEnumerator() => Begin(0);

        /// <summary>Runs the job as enumerating this object does, with an event at least every
        /// <paramref name="seconds"/>; 0: as the job says. An evaluation, a checkpoint or the first
        /// step may take longer.</summary>
        public IEnumerable<JobEvent> Events(double seconds)
        {
            using (IEnumerator<JobEvent> events = Begin(seconds))
                while (events.MoveNext()) yield return events.Current;
        }

        private IEnumerator<JobEvent> Begin(double seconds)
        {
            lock (gate)
            {
                if (disposed || enumerated)
                    throw new EchoTrainException(ErrorCode.State, "this run " + (disposed ? "is over" : "is enumerated already") +
                        "; Job.Run begins another", null);
                enumerated = true;
            }
            return Enumerate(seconds);
        }

        IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

        private IEnumerator<JobEvent> Enumerate(double seconds)
        {
            using (this)
            using (cancellation.Register(Stop))
            {
                JobEvent current;
                do
                {
                    Exception failure = null;  // the handler's; thrown after this event
                    using (Event raw = failures.Explained(
                        () => Reporting.Run(Reporting.Of(this, evaluation), progress => handle.next_event(seconds, progress), out failure)))
                        current = new JobEvent(raw);
                    yield return current;
                    Reporting.ThrowAgain(failure);
                } while (current.Kind != JobEventKind.End);
            }
        }

        /// <summary>The run's trainer, to read and set weights and hyperparameters between two
        /// events, to predict, evaluate, save and export. What is set takes effect in the run's next
        /// step. The run makes its own steps: <see cref="EchoTrain.Trainer.Step"/>, <see
        /// cref="EchoTrain.Trainer.Fit"/> and the like fail with <see cref="ErrorCode.State"/>.
        ///
        /// The trainer remains usable when the run is over, if it was asked for before. Only if
        /// several ranks trained together and had not reached the end, its calls fail
        /// then.</summary>
        public Trainer Trainer
        {
            get
            {
                lock (gate) return trainer ?? (trainer = new Trainer(device, handle.trainer(), "the trainer of a job's run"));
            }
        }

        /// <summary>Evaluates the job's evaluation pipeline. If the run's handler or <see
        /// cref="Stop"/> ends it, this fails with <see cref="ErrorCode.Cancelled"/>. An exception of
        /// the handler is thrown again.</summary>
        public Scores Evaluate()
        {
            Exception failure = null;
            using (EvalResult r = failures.Explained(
                () => Reporting.Run(Reporting.Of(this, evaluation), handle.evaluate, out failure)))
            {
                Reporting.ThrowAgain(failure);
                return new Scores(r.samples, r.loss, r.accuracy);
            }
        }

        /// <summary>Measures where the time of a training step goes, over <paramref name="steps"/>
        /// steps on a batch of the job's pipeline. These steps train: begin the run with <see
        /// cref="JobStart.Trial"/>. <paramref name="format"/> is "text" (for people), "json" or
        /// "trace" (one step, for chrome://tracing).</summary>
        public string Profile(int steps = 10, string format = "text") =>
            failures.Explained(() => handle.profile(steps, format));

        /// <summary>Returns the statistics of the run's input pipeline as JSON, as <see
        /// cref="Pipeline.Stats"/> does; with several ranks also what this one has
        /// exchanged.</summary>
        public string Stats => handle.pipeline_stats();

        /// <summary>Does the same as <see cref="EchoTrain.Trainer.SetHyperparameter"/>.</summary>
        [Obsolete("use Trainer.SetHyperparameter")]
        public void SetHyperparameter(string name, double value) => Trainer.SetHyperparameter(name, value);

        /// <summary>Asks the run to end soon and in order. Does nothing if it is over.</summary>
        public void Stop()
        {
            lock (gate)
                if (!disposed) handle.stop();
        }

        /// <summary>Ends the run and releases its folder. A thread that is waiting
        /// for an event gets it first.</summary>
        public void Dispose()
        {
            lock (gate)
            {
                if (disposed) return;
                handle.stop();
                disposed = true;
            }
            handle.close();  // without the lock: it waits for the transport, whose methods may call Stop()
        }
    }
}
