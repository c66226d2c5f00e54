using System;
using System.Collections;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>Stages from a source to batches; enumerating it is one epoch.
    /// <code>
    /// using (var pipeline = new Pipeline(new { seed = 1 })
    ///     .Add(Stages.Webdataset("train-*.tar.zst"), Stages.Label(classes: 10), Stages.Decode())
    ///     .Add(Stages.Echo(2), Stages.Batch(128), Stages.Normalize()))
    ///     foreach (Batch batch in pipeline) { ... }
    /// </code>
    /// One thread reads; <see cref="Cancel"/>, <see cref="Stats"/> and <see cref="BadRecords"/> may come
    /// from any.</summary>
    public sealed class Pipeline : IEnumerable<Batch>, IDisposable
    {
        private readonly Failures failures = new Failures();
        private readonly Functions functions;

        private readonly List<string> shown = new List<string>();
        private readonly string shownOptions;

        internal PipelineHandle Handle { get; }

        /// <summary><paramref name="options"/>: an object or dictionary with options of the job section
        /// "pipeline": threads, seed, epochs, on_error, ...</summary>
        public Pipeline(object options = null)
        {
            Natives.Load();
            functions = new Functions(failures);
            shownOptions = Spec.Write(OptionsOf(options));
            Handle = new PipelineHandle(shownOptions);
        }

        /// <summary>Appends stages.</summary>
        public Pipeline Add(params Spec[] stages)
        {
            foreach (Spec stage in stages)
            {
                if (stage.Kind != "stages")
                    throw new ArgumentException(stage.Name + " is no stage, but one of the " + stage.Kind);
                Handle.add(stage.Name, stage.Json);
                shown.Add(stage.ToString());
            }
            return this;
        }

        /// <summary>Appends a function as a stage. It is called from several threads with one item at a time (a
        /// sample, or after batch a whole batch), which is valid during the call only. What it throws fails the
        /// record, as on_error says. <paramref name="name"/> stands for it in errors and saved positions.
        /// </summary>
        public Pipeline Map(string name, Action<Batch> function)
        {
            Handle.add_map(name, functions.Add(name, function));
            shown.Add("map " + name);
            return this;
        }

        /// <summary>A function as the source, before any other stage: it sets the fields of one sample, or none where
        /// the pass has no more. <see cref="Batch.Ordinal"/> tells which: the pass in its upper bits, from 40 on, the
        /// number below. A pass without any sample is an error.</summary>
        public Pipeline Source(string name, Action<Batch> function)
        {
            Handle.add_source(name, functions.Add(name, function));
            shown.Add("source " + name);
            return this;
        }

        /// <summary>The next batch, which the caller disposes of; null at the end of an epoch.</summary>
        public Batch Next(CancellationToken cancellation = default(CancellationToken))
        {
            using (cancellation.Register(() => Handle.cancel()))
            {
                try
                {
                    functions.Start(this);
                    BatchHandle batch = Handle.next();
                    GC.KeepAlive(this);
                    return batch == null ? null : new Batch(batch);
                }
                catch (EchoTrainException error) when (error.Code == ErrorCode.Cancelled &&
                                                       cancellation.IsCancellationRequested)
                {
                    throw new OperationCanceledException(error.Message, error, cancellation);
                }
                catch (EchoTrainException error) when (error.Code == ErrorCode.Callback)
                {
                    Exception failure = failures.Original(error);
                    if (failure == null) throw;
                    throw new EchoTrainException(error.Code, error.Message, failure);
                }
            }
        }

        /// <summary>The batches of one epoch. Each is disposed of when the next is asked for.</summary>
        public IEnumerator<Batch> GetEnumerator()
        {
            for (Batch batch = Next(); batch != null; batch = Next())
                using (batch) yield return batch;
        }

        IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

        internal void StartFunctions() => functions.Start(this);

        /// <summary>Batches in an epoch, if no record is dropped; null where that is not known: for shards
        /// before their first pass is over, for epochs without end and for echo on demand.</summary>
        public long? Length
        {
            get
            {
                long length = Handle.length();
                return length < 0 ? (long?)null : length;
            }
        }

        /// <summary>Ends all work; a thread that waits for a batch gets an exception.</summary>
        public void Cancel() => Handle.cancel();

        /// <summary>Statistics of the stages and the consumer, as JSON.</summary>
        public string Stats => Handle.stats();

        /// <summary>Why is it slow? Rates, loads and the bottleneck of a pipeline that has run for a while, and what more
        /// threads, a cache or an echo stage would gain. Format: "text", "svg" (a drawing) or "json".</summary>
        public string Explain(string format = "text") => Handle.explain(format);

        /// <summary>What each thread did when, as a Chrome trace; needs the option "trace_events".</summary>
        public string Trace() => Handle.trace();

        /// <summary>The records that on_error "skip" or "quarantine" dropped, as JSON.</summary>
        public string BadRecords => Handle.bad_records();

        /// <summary>The position after the last batch read, as JSON.</summary>
        public string Save() => Handle.save();

        /// <summary>Before the first batch: continue where a pipeline of the same stages was saved.</summary>
        public void Restore(string state) => Handle.restore(state);

        /// <summary>The stages, with their options and those of the pipeline.</summary>
        public override string ToString() =>
            "Pipeline(" + string.Join(", ", shown) + (shownOptions == "{}" ? "" : "; " + shownOptions) + ")";

        public void Dispose()
        {
            functions.Queue.close();
            Handle.close();
        }

        internal static IEnumerable<KeyValuePair<string, object>> OptionsOf(object options)
        {
            if (options == null) return new KeyValuePair<string, object>[0];
            if (options is IEnumerable<KeyValuePair<string, object>> given) return given;
            if (options is IConvertible)  // a number, a text: no options, and no properties that could be
                throw new ArgumentException("the options are " + options + "; give an object with them: new { seed = 1 }",
                                            nameof(options));
            var found = new List<KeyValuePair<string, object>>();
            foreach (var property in options.GetType().GetProperties())
                found.Add(new KeyValuePair<string, object>(property.Name, property.GetValue(options)));
            return found;
        }

        /// What functions of a pipeline threw.
        private sealed class Failures
        {
            private const int Most = 64;  // under on_error "skip" there may be many, and nobody asks for them
            private readonly ConcurrentQueue<KeyValuePair<string, Exception>> kept =
                new ConcurrentQueue<KeyValuePair<string, Exception>>();

            /// The reason that the library is told.
            internal string Add(string name, Exception failure)
            {
                string reason = failure.GetType().Name + ": " + failure.Message;
                kept.Enqueue(new KeyValuePair<string, Exception>($"the function '{name}' failed: {reason}", failure));
                if (kept.Count > Most) kept.TryDequeue(out _);
                return reason;
            }

            /// What ended the run; null where that is not known any more.
            internal Exception Original(EchoTrainException error)
            {
                // A reason may begin with all of another one, that of an exception without words.
                return kept.Where(known => error.Message.Contains(known.Key))
                    .OrderByDescending(known => known.Key.Length).FirstOrDefault().Value;
            }
        }

        /// Runs the pipeline's functions on threads of its own. The pipeline's workers hand them over: native
        /// threads that call managed code are more than Mono stands.
        private sealed class Functions
        {
            private const double PatienceSeconds = 0.1;  // how soon an unreachable pipeline is noticed
            private readonly List<KeyValuePair<string, Action<Batch>>> functions =
                new List<KeyValuePair<string, Action<Batch>>>();
            private readonly Failures failures;
            private bool started;

            internal CallQueue Queue { get; } = new CallQueue();

            internal Functions(Failures failures) { this.failures = failures; }

            internal MapFunction Add(string name, Action<Batch> function)
            {
                functions.Add(new KeyValuePair<string, Action<Batch>>(name, function));
                return Queue.make(functions.Count - 1);
            }

            internal void Start(Pipeline pipeline)
            {
                if (started || functions.Count == 0) return;
                started = true;
                ServedQueues.Add(Queue);
                var owner = new WeakReference<PipelineHandle>(pipeline.Handle);
                for (int i = 0; i < Environment.ProcessorCount; ++i)
                    new Thread(() => Serve(owner)) { IsBackground = true, Name = "EchoTrain functions" }.Start();
            }

            private void Serve(WeakReference<PipelineHandle> owner)
            {
                while (!Queue.is_closed())
                {
                    using (Call call = Queue.take(PatienceSeconds))
                        if (call != null) call.finish(Run(call));
                    // An unreachable pipeline's finalizer waits for workers, which wait for us.
                    if (!owner.TryGetTarget(out PipelineHandle _)) Queue.close();
                }
                ServedQueues.Remove(Queue);
            }

            private string Run(Call call)
            {
                var view = new Batch(call.item());
                KeyValuePair<string, Action<Batch>> function = functions[call.function()];
                try
                {
                    function.Value(view);
                    return "";
                }
                catch (Exception error)
                {
                    return failures.Add(function.Key, error);
                }
                finally
                {
                    view.Expire();
                }
            }
        }
    }
}
