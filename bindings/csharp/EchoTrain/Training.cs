using System;
using System.Collections.Generic;
using System.Linq;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>Layers in a row; the loss is softmax cross-entropy unless set.</summary>
    public sealed class Model
    {
        internal ModelHandle Handle { get; }

        /// <summary>Layers in a row (one may read others by their names), or one of <see cref="Models"/>.</summary>
        public Model(params Spec[] layers) : this(new string[0], layers) { }

        /// <summary>Layers that read these fields of a batch; "image" where none is named.</summary>
        public Model(string[] inputs, params Spec[] layers)
        {
            Natives.Load();
            Handle = new ModelHandle(Json(inputs, layers));
        }

        private static string Json(string[] inputs, Spec[] layers)
        {
            if (layers.Length == 1 && layers[0].Kind == "models") return layers[0].BranchJson();
            foreach (Spec layer in layers)
                if (layer.Kind != "layers") throw new ArgumentException(layer.Name + " is no layer");
            var spec = new Dictionary<string, object> { ["layers"] = layers };
            if (inputs.Length > 0) spec["inputs"] = inputs;
            return Spec.Write(spec);
        }

        /// <summary>Layers, shapes and parameters as a table, for samples of these shapes: {"image": [28, 28, 1]}, or
        /// {"text": {"dtype": "i32", "shape": [12]}}, for each field that the model reads.</summary>
        public string Summary(string fields) => Handle.summary(fields, "text");

        /// <summary>The model as a job has it.</summary>
        public override string ToString() => "Model(" + Handle.json() + ")";

        /// <summary>"softmax_cross_entropy" (integer labels), "binary_cross_entropy", "mse", "l1" or "huber".</summary>
        public Model Loss(string loss)
        {
            Handle.loss(loss, "{}");
            return this;
        }
    }

    /// <summary>An opened Vulkan device with its kernels; trainers share it.</summary>
    public sealed class Device
    {
        internal RuntimeHandle Handle { get; }

        /// <summary><paramref name="selector"/>: empty for the first, an index, or part of a name. At most
        /// <paramref name="memoryLimitBytes"/> of device memory are taken; 0: what there is. <paramref name="tuning"/>: a
        /// file of <see cref="Tune"/>; empty: the user's, if there is one.</summary>
        public Device(string selector = "", long memoryLimitBytes = 0, string tuning = "")
        {
            Natives.Load();
            Handle = new RuntimeHandle(selector, memoryLimitBytes, tuning);
        }

        /// <summary>Finds the fastest kernels on this device for the models whose trainers have had their first batch, by
        /// trying, and keeps them in <paramref name="path"/> (empty: for all later runs of this user). Trainers made later
        /// use them.</summary>
        public void Tune(string path = "") => Handle.tune(path);

        public string Name => Handle.device().name;
        public string Driver => Handle.device().driver;

        /// <summary>Names of the Vulkan devices, discrete GPUs first.</summary>
        public static IReadOnlyList<string> List()
        {
            Natives.Load();
            return Bindings.devices().Select(info => info.name).ToList();
        }

        /// <summary>For training on a CPU device: asks for 512-bit vectors where the processor has them and the driver
        /// gains by them (Mesa 25 and later). Call it before the first device is opened.</summary>
        public static void PreferWideCpuVectors()
        {
            Natives.Load();
            Bindings.prefer_wide_cpu_vectors();
        }
    }

    /// <summary>A finished step.</summary>
    public sealed class Step
    {
        internal Step(StepResult r)
        {
            Number = r.step;
            Samples = r.samples;
            Loss = r.loss;
            Accuracy = r.accuracy;
            LearningRate = r.learning_rate;
        }

        public long Number { get; }
        public int Samples { get; }
        public double Loss { get; }
        public double Accuracy { get; }
        public double LearningRate { get; }
    }

    /// <summary>Means over an epoch.</summary>
    public sealed class Scores
    {
        internal Scores(double loss, double accuracy)
        {
            Loss = loss;
            Accuracy = accuracy;
        }

        public double Loss { get; }
        public double Accuracy { get; }
    }

    /// <summary>What <see cref="Trainer.StepEnded"/> tells.</summary>
    public sealed class StepEndedEventArgs : EventArgs
    {
        /// <summary>Counts from 0.</summary>
        public int Epoch { get; internal set; }

        public Step Step { get; internal set; }
    }

    /// <summary>What <see cref="Trainer.EpochEnded"/> tells. Set <see cref="Stop"/> to end the run.</summary>
    public sealed class EpochEndedEventArgs : EventArgs
    {
        public int Epoch { get; internal set; }
        public Scores Training { get; internal set; }

        /// <summary>null where no validation pipeline was given or its evaluation was stopped.</summary>
        public Scores Validation { get; internal set; }

        public bool Stop { get; set; }
    }

    /// <summary>Trains a model on a Vulkan device. Used by one thread at a time: a call while another is in one fails with
    /// <see cref="ErrorCode.State"/>.</summary>
    public sealed class Trainer : IDisposable
    {
        private readonly TrainerHandle handle;
        private readonly string shown;

        public Device Device { get; }

        /// <summary>After each epoch of <see cref="Fit"/>.</summary>
        public event EventHandler<EpochEndedEventArgs> EpochEnded;

        /// <summary>Raised by <see cref="Fit"/> for each finished step, for progress.</summary>
        public event EventHandler<StepEndedEventArgs> StepEnded;

        /// <summary>Raised by <see cref="Evaluate"/>, also within <see cref="Fit"/>, for each batch, on the thread that
        /// evaluates. A handler must not use the trainer; what it throws ends the evaluation and is thrown again. Where it
        /// stops the evaluation, Evaluate fails with <see cref="ErrorCode.Cancelled"/>, and Fit goes on without that
        /// evaluation.</summary>
        public event EventHandler<EvaluationEventArgs> EvaluationProgressed;

        /// <summary><paramref name="totalSteps"/> is where decaying schedules end; 0: unknown.</summary>
        public Trainer(Device device, Model model, Spec optimizer, Spec schedule, long seed = 0, long totalSteps = 0)
        {
            Device = device ?? throw new ArgumentNullException(nameof(device));
            if (model == null) throw new ArgumentNullException(nameof(model));
            if (optimizer == null) throw new ArgumentNullException(nameof(optimizer));
            if (schedule == null) throw new ArgumentNullException(nameof(schedule));
            using (var spec = new OptimizerHandle(optimizer.Name, optimizer.Json, schedule.Json))
                handle = new TrainerHandle(device.Handle, model.Handle, spec, seed, totalSteps);
            shown = "Trainer(" + model + ", " + optimizer + ", " + schedule + ", device=" + device.Name + ")";
        }

        /// <summary>With a constant learning rate.</summary>
        public Trainer(Device device, Model model, Spec optimizer, double learningRate, long seed = 0)
            : this(device, model, optimizer, Schedules.Schedule(learningRate), seed) { }

        /// <summary>Starts a step on the fields "image" and "label"; returns while the device works.</summary>
        public void Step(Batch batch) => batch.With(fields => handle.step(fields));

        /// <summary>The oldest finished step that was not asked for; null where there is none.</summary>
        public Step Result(bool wait = true)
        {
            using (StepResult r = handle.result(wait)) return r.valid ? new Step(r) : null;
        }

        /// <summary>Loss and accuracy over one whole epoch of a pipeline: where one has begun, the rest is read past, and the
        /// next is taken.</summary>
        public Scores Evaluate(Pipeline pipeline) => RunEvaluation(pipeline, EvaluationProgressed);

        private Scores RunEvaluation(Pipeline pipeline, EventHandler<EvaluationEventArgs> handler)
        {
            if (pipeline == null) throw new ArgumentNullException(nameof(pipeline));
            pipeline.StartFunctions();
            using (EvalResult r = Evaluation.Run(this, handler,
                                                 progress => handle.evaluate(pipeline.Handle, progress), out var failure))
            {
                Evaluation.ThrowAgain(failure);
                return new Scores(r.loss, r.accuracy);
            }
        }

        /// <summary>The last layer's outputs for the field "image", as field "output": [N, outputs].</summary>
        public Batch Predict(Batch batch) => new Batch(batch.With(handle.predict));

        /// <summary>What a detector found, of the outputs of <see cref="Predict"/>: field "boxes", [N, most, 6] with
        /// label, left, top, right, bottom (shares of the image) and score, the best first; the label is -1 in rows
        /// beyond those found.</summary>
        public static Batch Detections(Batch outputs, double leastScore = 0.5, double mostOverlap = 0.45,
                                       int most = 100) =>
            new Batch(outputs.With(fields => TrainerHandle.detections(fields, leastScore, mostOverlap, most)));

        /// <summary>Trains on <paramref name="epochs"/> epochs, at least one; returns the scores of each.</summary>
        public IReadOnlyList<Scores> Fit(Pipeline pipeline, int epochs, Pipeline validation = null)
        {
            if (pipeline == null) throw new ArgumentNullException(nameof(pipeline));
            if (epochs < 1)
                throw new ArgumentOutOfRangeException(nameof(epochs), "epochs is " + epochs + "; it must be at least 1");
            var history = new List<Scores>();
            for (int epoch = 0; epoch < epochs; ++epoch)
            {
                Scores training = FitEpoch(pipeline, epoch);
                history.Add(training);
                var told = new EpochEndedEventArgs
                {
                    Epoch = epoch, Training = training, Validation = validation == null ? null : Validate(validation)
                };
                EpochEnded?.Invoke(this, told);
                if (told.Stop) break;
            }
            return history;
        }

        // null where a handler stopped it.
        private Scores Validate(Pipeline validation)
        {
            EventHandler<EvaluationEventArgs> handler = EvaluationProgressed;
            if (handler == null) return RunEvaluation(validation, null);
            bool stopped = false;
            try
            {
                return RunEvaluation(validation, (sender, told) =>
                {
                    handler(sender, told);
                    stopped = told.Stop;
                });
            }
            catch (EchoTrainException error) when (error.Code == ErrorCode.Cancelled && stopped)  // and not by Pipeline.Cancel
            {
                return null;
            }
        }

        private Scores FitEpoch(Pipeline pipeline, int epoch)
        {
            double samples = 0, loss = 0, accuracy = 0;
            Action<bool> collect = wait =>
            {
                for (Step r = Result(wait); r != null; r = Result(wait))
                {
                    samples += r.Samples;
                    loss += r.Samples * r.Loss;
                    accuracy += r.Samples * r.Accuracy;
                    StepEnded?.Invoke(this, new StepEndedEventArgs { Epoch = epoch, Step = r });
                }
            };
            foreach (Batch batch in pipeline)
            {
                Step(batch);
                collect(false);
            }
            collect(true);
            if (samples == 0)
                throw new EchoTrainException(ErrorCode.State, "epoch " + (epoch + 1) + " gave no batch: there are fewer " +
                    "samples than a batch holds, or the pipeline's epochs are over", null);
            return new Scores(loss / samples, accuracy / samples);
        }

        /// <summary>All parameters and running statistics, as the fields of a batch, or the one of that name: a copy.
        /// Needs a step or a prediction before.</summary>
        public Batch Weights(string name = "") => new Batch(handle.weights(name));

        /// <summary>Replaces those that <paramref name="weights"/> has as fields; the optimizer's state stays.</summary>
        public void SetWeights(Batch weights) =>
            weights.With(fields => handle.set_weights(fields));

        /// <summary>Changes one of the optimizer's ("momentum", "beta1", "beta2", "decay", "weight_decay") or the loss's
        /// ("label_smoothing") from the next step on, at no cost. Checkpoints keep it.</summary>
        public void SetHyperparameter(string name, double value) => handle.set_hyperparameter(name, value);

        /// <summary>Layers, shapes and parameters as a table. Needs a step or a prediction before.</summary>
        public string Summary() => handle.summary("text");

        /// <summary>Weights, optimizer state and step count, in a new folder below
        /// <paramref name="directory"/>.</summary>
        public void Save(string directory) => handle.save(directory);

        /// <summary>Writes the model with its weights as an ONNX file, for other runtimes; images are [N, H, W, C] as
        /// here.</summary>
        public void ExportOnnx(string path) => handle.export_onnx(path);

        /// <summary>The newest whole checkpoint below <paramref name="directory"/>.</summary>
        public void Load(string directory) => handle.load(directory);

        /// <summary>Weights that PyTorch trained, to begin with: a safetensors file of a state_dict, before the
        /// first batch. <paramref name="names"/> is a JSON object that replaces beginnings of the model's
        /// names.</summary>
        public void LoadPytorch(string path, string names = "{}") => handle.load_pytorch(path, names);

        public override string ToString() => shown;

        public void Dispose() => handle.close();
    }

    /// <summary>What an event of a job's run tells of.</summary>
    public enum JobEventKind { Progress, Evaluation, Checkpoint, End }

    /// <summary>One moment of a job's run; loss and accuracy are means since the event before.</summary>
    public sealed class JobEvent
    {
        internal JobEvent(Event e)
        {
            Kind = (JobEventKind)e.kind;
            Step = e.step;
            Epoch = e.epoch;
            Seconds = e.seconds;
            Loss = e.loss;
            Accuracy = e.accuracy;
            ExamplesPerSecond = e.examples_per_second;
            DeviceWaitShare = e.device_wait_share;
            EvalLoss = e.eval_loss;
            EvalAccuracy = e.eval_accuracy;
        }

        public JobEventKind Kind { get; }
        public long Step { get; }
        public long Epoch { get; }
        public double Seconds { get; }
        public double Loss { get; }
        public double Accuracy { get; }
        public double ExamplesPerSecond { get; }
        public double DeviceWaitShare { get; }
        public double EvalLoss { get; }
        public double EvalAccuracy { get; }
    }

    /// <summary>How a job's run begins.</summary>
    public enum JobStart
    {
        /// <summary>From the beginning; a folder that holds an earlier run is an error (ErrorCode.State).</summary>
        New,
        /// <summary>From the newest checkpoint.</summary>
        Resume,
        /// <summary>From the beginning, in place of an earlier run, whose files are removed when the first step is
        /// done.</summary>
        Overwrite
    }

    /// <summary>A job file: <c>foreach (JobEvent e in Job.Load("job.json").Run(new Device())) ...</c> runs it.</summary>
    public sealed class Job
    {
        internal JobHandle Handle { get; }

        private Job(string text, bool isJson, string[] overrides)
        {
            Natives.Load();
            Handle = new JobHandle(text, isJson, new Strings(overrides));
        }

        /// <summary><paramref name="overrides"/>: "key=value".</summary>
        public static Job Load(string path, params string[] overrides) => new Job(path, false, overrides);

        public static Job Parse(string json, params string[] overrides) => new Job(json, true, overrides);

        public string Json => Handle.json();

        /// <summary>Measures the job for a few seconds and says, as JSON, whether echoing helps, where an echo node should
        /// stand and with which factor, and what would help first. The member "text" is for people, "job" the changed job.
        /// <paramref name="seconds"/> is the length of each measurement; with <paramref name="check"/> both jobs run in turns,
        /// and "checked" has the outcomes. Writes nothing.</summary>
        public string Advise(Device device, double seconds = 3, bool check = false,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken))
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            using (cancellation.Register(() => Handle.stop_advising()))
                return Handle.advise(device.Handle, seconds, check);
        }

        public override string ToString() => "Job(" + Json + ")";

        /// <summary>Begins a run, as JobStart.Resume or JobStart.New; enumerating it trains.</summary>
        public JobRun Run(Device device, bool resume = false,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken))
            => Run(device, resume ? JobStart.Resume : JobStart.New, cancellation);

        /// <summary>The same, beginning as <paramref name="start"/> says. The folder output.dir holds one run; a job file
        /// that names none has runs/ and the stem of its own name. A folder in use is an error here, and the run has it
        /// until it ends or is disposed of. <paramref name="cancellation"/> stops the run in order. <paramref
        /// name="evaluation"/> is told of the batches of evaluations; where it stops one, the run goes on without
        /// it.</summary>
        public JobRun Run(Device device, JobStart start,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken),
            EventHandler<EvaluationEventArgs> evaluation = null)
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            WarnOfNoOutput(start);
            return new JobRun(new TrainerHandle(device.Handle, Handle, (int)start), cancellation, evaluation,
                              new LentTransport.Failures());
        }

        /// <summary>The same as one of several ranks, which begin theirs at the same time, over a transport of the program's. It
        /// belongs to the run from then on.</summary>
        public JobRun Run(Device device, JobStart start, Transport transport,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken))
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            if (transport == null) throw new ArgumentNullException(nameof(transport));
            WarnOfNoOutput(start);
            var failures = new LentTransport.Failures();
            Native.Transport lent = LentTransport.Lend(transport, failures);
            TrainerHandle trainer = failures.Explained(() =>
                new TrainerHandle(device.Handle, Handle, (int)start, transport.Rank, transport.Size, lent));
            return new JobRun(trainer, cancellation, null, failures);
        }

        private void WarnOfNoOutput(JobStart start)
        {
            if (start != JobStart.Resume && Handle.forgets_output())
                System.Diagnostics.Trace.TraceWarning("this run saves nothing, no checkpoint and no metrics: the job " +
                    "has no output.dir (\"\" says that this is meant)");
        }
    }
}
