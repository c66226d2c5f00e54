using System;
using System.Collections;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>Stages from a source to batches. Enumerating it reads one epoch.
    /// <code>
    /// using (var pipeline = new Pipeline(new { seed = 1 })
    ///     .Add(Stages.Webdataset("train-*.tar.zst"), Stages.Label(classes: 10), Stages.Decode())
    ///     .Add(Stages.Echo(2), Stages.Batch(128), Stages.Normalize()))
    ///     foreach (Batch batch in pipeline) { ... }
    /// </code>
    /// One thread reads; any thread may call <see cref="Cancel"/>, <see cref="Stats"/> and
    /// <see cref="BadRecords"/>.</summary>
    public sealed class Pipeline : IEnumerable<Batch>, IDisposable
    {
        private readonly Failures failures = new Failures();
        private readonly Functions functions;

        private readonly List<string> shown = new List<string>();
        private readonly string shownOptions;

        internal PipelineHandle Handle { get; }

        /// <summary>Creates a pipeline without stages. <paramref name="options"/> is an object or
        /// dictionary with options of the job section "pipeline": threads, seed, epochs, on_error
        /// and so on.</summary>
        public Pipeline(object options = null)
        {
            Natives.Load();
            functions = new Functions(failures);
            shownOptions = Spec.Write(OptionsOf(options));
            Handle = new PipelineHandle(shownOptions);
        }

        private Pipeline(PipelineHandle handle, string json)
        {
            functions = new Functions(failures);
            shownOptions = json;
            Handle = handle;
        }

        /// <summary>Creates a pipeline from the JSON of a job's section "pipeline": "stages" and
        /// options.</summary>
        public static Pipeline FromJson(string json)
        {
            Natives.Load();
            return new Pipeline(PipelineHandle.from_json(json), json);
        }

        /// <summary>Appends stages.</summary>
        public Pipeline Add(params Spec[] stages)
        {
            if (stages == null) throw new ArgumentNullException(nameof(stages));
            foreach (Spec stage in stages)
            {
                if (stage == null) throw new ArgumentNullException(nameof(stages));
                if (stage.Kind != "stages")
                    throw new ArgumentException(stage.Name + " is not a stage, but one of the " + stage.Kind);
                Handle.add(stage.Name, stage.Json);
                shown.Add(stage.ToString());
            }
            return this;
        }

        /// <summary>Appends a function as a stage. Several threads call it, each with one item: a
        /// sample, or a whole batch after the stage batch. The item is valid only during the call.
        /// An exception makes the record a bad one, which on_error deals with. <paramref
        /// name="name"/> stands for the function in errors and saved positions.</summary>
        public Pipeline Map(string name, Action<Batch> function)
        {
            if (function == null) throw new ArgumentNullException(nameof(function));
            functions.Add(name, function, made => Handle.add_map(name, made));
            shown.Add("map " + name);
            return this;
        }

        /// <summary>Adds a function as the source, before any other stage. It sets the fields of
        /// one sample, or none if the pass has no more. <see cref="Batch.Ordinal"/> identifies the
        /// sample: bits 40 and up are the pass, the lower bits the number in it. A pass without any
        /// sample is an error.</summary>
        public Pipeline Source(string name, Action<Batch> function)
        {
            if (function == null) throw new ArgumentNullException(nameof(function));
            functions.Add(name, function, made => Handle.add_source(name, made));
            shown.Add("source " + name);
            return this;
        }

        /// <summary>Waits for the next batch and returns it; null at the end of an epoch. The
        /// caller disposes of it.</summary>
        public Batch Next(CancellationToken cancellation = default(CancellationToken))
        {
            using (cancellation.Register(() => End(Handle)))
            {
                try
                {
                    functions.Start(this);
                    BatchHandle batch = Explained(Handle.next);
                    GC.KeepAlive(this);
                    return batch == null ? null : new Batch(batch);
                }
                catch (EchoTrainException error) when (error.Code == ErrorCode.Cancelled &&
                                                       cancellation.IsCancellationRequested)
                {
                    throw new OperationCanceledException(error.Message, error, cancellation);
                }
            }
        }

        /// Returns the result of <paramref name="call"/>, which reads the pipeline. If a function of
        /// the pipeline ended it, its exception becomes the inner exception of the error.
        internal T Explained<T>(Func<T> call)
        {
            try
            {
                return call();
            }
            catch (EchoTrainException error) when (error.Code == ErrorCode.Callback)
            {
                Exception failure = failures.Original(error);
                if (failure == null) throw;
                throw new EchoTrainException(error.Code, error.Message, failure);
            }
        }

        /// <summary>Returns the batches of one epoch. Each is disposed of when the next one is
        /// requested.</summary>
        public IEnumerator<Batch> GetEnumerator()
        {
            for (Batch batch = Next(); batch != null; batch = Next())
                using (batch) yield return batch;
        }

        IEnumerator IEnumerable.GetEnumerator() => GetEnumerator();

        internal void StartFunctions() => functions.Start(this);

        /// <summary>The number of batches in an epoch, provided that no record is dropped. Null if
        /// it is not known: for shards before their first pass is over, for endless epochs, and for
        /// echo on demand.</summary>
        public long? Length
        {
            get
            {
                long length = Handle.length();
                return length < 0 ? (long?)null : length;
            }
        }

        /// <summary>Stops all work; a thread that is waiting for a batch gets an
        /// exception.</summary>
        public void Cancel() => Handle.cancel();

        /// <summary>Returns statistics of the stages and the consumer as JSON.</summary>
        public string Stats => Handle.stats();

        /// <summary>Explains the speed of a pipeline that has run for a while: rates, loads, the
        /// bottleneck, and what more threads, a cache or an echo stage would gain. The format is
        /// "text", "svg" (a drawing) or "json".</summary>
        public string Explain(string format = "text") => Handle.explain(format);

        /// <summary>Returns what each thread did when, as a Chrome trace. Needs the option
        /// "trace_events".</summary>
        public string Trace() => Handle.trace();

        /// <summary>Returns the records that on_error "skip" or "quarantine" dropped, as
        /// JSON.</summary>
        public string BadRecords => Handle.bad_records();

        /// <summary>Returns the position after the last batch that was read, as JSON.</summary>
        public string Save() => Handle.save();

        /// <summary>Continues where a pipeline of the same stages was saved. Call it once, before
        /// the first batch.</summary>
        public void Restore(string state) => Handle.restore(state);

        /// <summary>Lists the stages with their options, and the options of the pipeline.</summary>
        public override string ToString() =>
            "Pipeline(" + string.Join(", ", shown) + (shownOptions == "{}" ? "" : "; " + shownOptions) + ")";

        public void Dispose()
        {
            End(Handle);  // first: a call that fails while the pipeline runs makes its sample a bad one
            functions.Queue.close();
            Handle.close();
        }

        private static void End(PipelineHandle handle)
        {
            try
            {
                handle.cancel();
            }
            catch (EchoTrainException)
            {
                // It is closed, or has wrong settings, which it has reported.
            }
        }

        internal static IEnumerable<KeyValuePair<string, object>> OptionsOf(object options)
        {
            if (options == null) return new KeyValuePair<string, object>[0];
            if (options is IEnumerable<KeyValuePair<string, object>> given) return given;
            if (options is IConvertible)  // a number or text has no options
                throw new ArgumentException("the options are " + options + "; give an object with them: new { seed = 1 }",
                                            nameof(options));
            var found = new List<KeyValuePair<string, object>>();
            foreach (var property in options.GetType().GetProperties())
                found.Add(new KeyValuePair<string, object>(property.Name, property.GetValue(options)));
            return found;
        }

        /// The exceptions that a pipeline's functions threw.
        private sealed class Failures
        {
            private const int Most = 64;  // under on_error "skip" there may be many, and nobody asks for them
            private readonly ConcurrentQueue<KeyValuePair<string, Exception>> kept =
                new ConcurrentQueue<KeyValuePair<string, Exception>>();

            /// Keeps the exception and returns the reason to report to the library.
            internal string Add(string name, Exception failure)
            {
                string reason = EchoTrainException.Passable(failure.GetType().Name + ": " + failure.Message);
                kept.Enqueue(new KeyValuePair<string, Exception>($"the function '{name}' failed: {reason}", failure));
                if (kept.Count > Most) kept.TryDequeue(out _);
                return reason;
            }

            /// Returns the exception that ended the run; null if it is no longer known.
            internal Exception Original(EchoTrainException error)
            {
                // One reason may be a prefix of another: that of an exception without a message.
                return kept.Where(known => error.Message.Contains(known.Key))
                    .OrderByDescending(known => known.Key.Length).FirstOrDefault().Value;
            }
        }

        /// Runs the pipeline's functions on its own threads. The pipeline's workers queue the
        /// calls, because Mono does not cope with native threads that call managed code.
        private sealed class Functions
        {
            private const double PatienceSeconds = 0.1;  // how long a thread that is to be aborted may wait
            private readonly List<KeyValuePair<string, Action<Batch>>> functions =
                new List<KeyValuePair<string, Action<Batch>>>();
            private readonly Failures failures;
            private bool started;
            private int threads, busy;

            internal CallQueue Queue { get; } = new CallQueue();

            internal Functions(Failures failures) { this.failures = failures; }

            /// Keeps the function if the pipeline takes it. Threads for functions that it does not have
            /// would end with nothing but Dispose.
            internal void Add(string name, Action<Batch> function, Action<MapFunction> give)
            {
                EchoTrainException.Whole(name, nameof(name));  // nobody would free the function of a call that is not made
                lock (functions)
                {
                    functions.Add(new KeyValuePair<string, Action<Batch>>(name, function));
                    try
                    {
                        give(Queue.make(functions.Count - 1));
                    }
                    catch
                    {
                        functions.RemoveAt(functions.Count - 1);
                        throw;
                    }
                }
            }

            internal void Start(Pipeline pipeline)
            {
                lock (functions)  // threads that read at the same time, of which the library refuses all but one
                {
                    if (started || functions.Count == 0) return;
                    var owner = new WeakReference<PipelineHandle>(pipeline.Handle);
                    ServedQueues.Add(Queue, () =>
                    {
                        if (owner.TryGetTarget(out PipelineHandle handle)) End(handle);
                    });
                    try
                    {
                        StartThread();
                    }
                    catch (EchoTrainException)
                    {
                        ServedQueues.Remove(Queue);
                        throw;
                    }
                    started = true;
                }
            }

            private void StartThread()
            {
                Interlocked.Increment(ref threads);
                try
                {
                    ServedQueues.StartThread("EchoTrain functions", Serve);
                }
                catch (EchoTrainException)
                {
                    Interlocked.Decrement(ref threads);
                    throw;
                }
            }

            // Until the queue closes, which it also does when an unreachable pipeline's finalizer has
            // destroyed its functions. The finalizer waits for workers, which wait for this.
            private void Serve()
            {
                while (!Queue.is_closed())
                    using (Call call = Queue.take(PatienceSeconds))
                    {
                        if (call == null) continue;
                        // One thread stays free for the next call, so there is one more than calls at the same time.
                        try
                        {
                            if (Interlocked.Increment(ref busy) == Volatile.Read(ref threads)) StartThread();
                        }
                        catch (EchoTrainException)
                        {
                            // The existing threads continue; the next call tries again.
                        }
                        string reason = Run(call);
                        Interlocked.Decrement(ref busy);
                        call.finish(reason);
                        ServedQueues.ForgetStack();
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
