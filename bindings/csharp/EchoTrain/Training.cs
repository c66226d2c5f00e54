using System;
using System.Collections.Generic;
using System.Linq;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>A sequence of layers; the loss is softmax cross-entropy unless set.</summary>
    public sealed class Model : IDisposable
    {
        internal ModelHandle Handle { get; }

        /// <summary>Creates a model of a sequence of layers, which may read others by their names,
        /// or of one of <see cref="Models"/>.</summary>
        public Model(params Spec[] layers) : this(new string[0], layers) { }

        /// <summary>Creates a model of layers that read these fields of a batch; "image" if none is
        /// named.</summary>
        public Model(string[] inputs, params Spec[] layers)
        {
            Natives.Load();
            Handle = new ModelHandle(JsonOf(inputs, layers));
        }

        private Model(ModelHandle handle)
        {
            Handle = handle;
        }

        /// <summary>Creates a model from an ONNX file, for fine-tuning: a trainer begins with the
        /// file's weights. <paramref name="until"/> cuts the network behind a value, a node or a
        /// layer of that name ("": the file's output), and <paramref name="layers"/> follow there.
        /// Fields have the names of the file's inputs; images are [N, C, H, W] in the file and
        /// [N, H, W, C] here.</summary>
        public static Model FromOnnx(string path, string until = "", params Spec[] layers)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            if (until == null) throw new ArgumentNullException(nameof(until));
            Natives.Load();
            RequireLayers(layers);
            var spec = new Dictionary<string, object> { ["onnx"] = path, ["layers"] = layers };
            if (until.Length > 0) spec["until"] = until;
            return new Model(new ModelHandle(Spec.Write(spec)));
        }

        /// <summary>Creates a model from the form that jobs use: layers, inputs and loss, or the
        /// name of a ready-made model with its options.</summary>
        public static Model FromJson(string json)
        {
            Natives.Load();
            return new Model(new ModelHandle(json));
        }

        private static string JsonOf(string[] inputs, Spec[] layers)
        {
            if (inputs == null) throw new ArgumentNullException(nameof(inputs));
            if (layers?.Length == 1 && layers[0]?.Kind == "models") return layers[0].BranchJson();
            RequireLayers(layers);
            var spec = new Dictionary<string, object> { ["layers"] = layers };
            if (inputs.Length > 0) spec["inputs"] = inputs;
            return Spec.Write(spec);
        }

        private static void RequireLayers(Spec[] layers)
        {
            if (layers == null || layers.Contains(null)) throw new ArgumentNullException(nameof(layers));
            foreach (Spec layer in layers)
                if (layer.Kind != "layers") throw new ArgumentException(layer.Name + " is not a layer");
        }

        /// <summary>Freezes the parameters whose names match <paramref name="pattern"/>, such as
        /// "conv2d_1.*", where * stands for any characters: training leaves them as they are. Call
        /// it before the trainer is created.</summary>
        public Model Freeze(string pattern)
        {
            Handle.freeze(pattern);
            return this;
        }

        /// <summary>Gives dense layers and the projections of attention layers low-rank adapters
        /// (LoRA) of <paramref name="rank"/>, and freezes all else. <paramref name="layers"/> are
        /// patterns of their names, such as "*.query"; an adapter's result is multiplied by
        /// <paramref name="alpha"/> / rank. <paramref name="train"/>: patterns of parameters that
        /// are trained as they are, such as "head.*". Call it before the trainer is
        /// created.</summary>
        public Model Lora(string[] layers, int rank = 8, double alpha = 16, double dropout = 0, string[] train = null)
        {
            Handle.lora(Spec.Write(new Dictionary<string, object>
            {
                ["layers"] = layers, ["rank"] = rank, ["alpha"] = alpha, ["dropout"] = dropout,
                ["train"] = train ?? new string[0]
            }));
            return this;
        }

        /// <summary>Keeps the frozen weights of products and convolutions in <paramref name="bits"/>
        /// bits in device memory: 8 or 4. Call it before the trainer is created.</summary>
        public Model Quantize(int bits)
        {
            Handle.quantize(bits);
            return this;
        }

        /// <summary>Returns layers, shapes and parameters as a table, for samples of these shapes:
        /// {"image": [28, 28, 1]} or {"text": {"dtype": "i32", "shape": [12]}}, with each field
        /// that the model reads.</summary>
        public string Summary(string fields) => Handle.summary(fields, "text");

        /// <summary>The model in the form that jobs use.</summary>
        public string Json => Handle.json();

        /// <summary>Releases the model's memory. Its trainers remain usable.</summary>
        public void Dispose() => Handle.close();

        public override string ToString() => Handle.is_closed() ? "Model(closed)" : "Model(" + Json + ")";

        /// <summary>Sets the loss: "softmax_cross_entropy" (integer labels),
        /// "binary_cross_entropy", "mse", "l1" or "huber". <paramref name="options"/> is an object
        /// with options of the loss: <c>new { label_smoothing = 0.1 }</c>.</summary>
        public Model Loss(string loss, object options = null)
        {
            Handle.loss(loss, Spec.Write(Pipeline.OptionsOf(options)));
            return this;
        }
    }

    /// <summary>The kinds of devices.</summary>
    public enum DeviceKind { Discrete, Integrated, Virtual, Cpu, Other }

    /// <summary>Families of kernels; see ETR_KERNELS_* in the C header.</summary>
    public enum DeviceKernels { Automatic, Cpu, Tiled, Matrix }

    /// <summary>How a device is opened.</summary>
    public sealed class DeviceOptions
    {
        /// <summary>At most so much of the device's memory is used; 0: no limit.</summary>
        public long MemoryLimitBytes { get; set; }

        /// <summary>A file that <see cref="Device.Tune"/> wrote; null: the user's file, if it
        /// exists; empty: none.</summary>
        public string Tuning { get; set; }

        /// <summary>A device that does not finish its work within so many seconds of waiting is
        /// treated as lost; 0: 300 on GPUs, no limit on CPUs.</summary>
        public double HangSeconds { get; set; }

        /// <summary>The family of kernels.</summary>
        public DeviceKernels Kernels { get; set; }

        /// <summary>The folder of the pipeline cache; null: the user's; empty: none.</summary>
        public string CacheDir { get; set; }

        /// <summary>Whether to load Vulkan's validation layer, whose messages are logged.</summary>
        public bool Validation { get; set; }

        /// <summary>Whether to use kernels without comparing their first results with the
        /// host's.</summary>
        public bool TrustDriver { get; set; }
    }

    /// <summary>An open Vulkan device with its kernels; trainers share it.</summary>
    public sealed class Device : IDisposable
    {
        internal RuntimeHandle Handle { get; }

        /// <summary>Opens a device. <paramref name="selector"/> is an index or part of a name;
        /// empty: the first device. At most <paramref name="memoryLimitBytes"/> of its memory are
        /// used; 0: no limit. <paramref name="tuning"/> is a file that <see cref="Tune"/> wrote;
        /// empty: the user's file, if it exists. A device that does not finish its work within
        /// <paramref name="hangSeconds"/> of waiting is treated as lost; 0: 300 on GPUs, no limit
        /// on CPUs.</summary>
        public Device(string selector = "", long memoryLimitBytes = 0, string tuning = "",
                      double hangSeconds = 0)
            : this(selector, new DeviceOptions { MemoryLimitBytes = memoryLimitBytes,
                                                 Tuning = string.IsNullOrEmpty(tuning) ? null : tuning, HangSeconds = hangSeconds }) { }

        /// <summary>Opens a device with options.</summary>
        public Device(string selector, DeviceOptions options)
        {
            if (selector == null) throw new ArgumentNullException(nameof(selector));
            if (options == null) throw new ArgumentNullException(nameof(options));
            Natives.Load();
            using (var given = new Native.DeviceOptions
            {
                device = selector,
                memory_limit_bytes = options.MemoryLimitBytes,
                hang_seconds = options.HangSeconds,
                kernels = (int)options.Kernels,
                validation = options.Validation,
                trust_driver = options.TrustDriver,
                users_tuning = options.Tuning == null,
                users_cache = options.CacheDir == null,
                tuning = options.Tuning ?? "",
                cache_dir = options.CacheDir ?? ""
            }) Handle = new RuntimeHandle(given);
        }

        /// <summary>Finds, by trying them, the fastest kernels on this device for the models whose
        /// trainers have had their first batch. Writes them to the file <paramref name="path"/>
        /// (empty: the user's file, for all later runs). Trainers created later use them.
        /// <paramref name="progress"/> is told how many products and convolutions have been
        /// measured, their number, and the latest one with the kernel that was chosen; if it stops,
        /// what was measured is written.</summary>
        public void Tune(string path = "", EventHandler<ProgressEventArgs> progress = null)
        {
            Reporting.Run(Reporting.Of(this, progress), told => { Handle.tune(path, told); return true; },
                          out Exception failure);
            Reporting.ThrowAgain(failure);
        }

        /// <summary>The device's place in <see cref="List"/>: discrete GPUs come first, CPU devices
        /// last.</summary>
        public int Index => Handle.device().index;

        public DeviceKind Kind => (DeviceKind)Handle.device().kind;

        /// <summary>The size in bytes of the largest heap of device-local memory.</summary>
        public long MemoryBytes => Handle.device().memory_bytes;

        public string Name => Handle.device().name;
        public string Driver => Handle.device().driver;

        /// <summary>Releases the device when its trainers and runs, which remain usable, are
        /// disposed of, too.</summary>
        public void Dispose() => Handle.close();

        /// <summary>Returns the names of the Vulkan devices, discrete GPUs first.</summary>
        public static IReadOnlyList<string> List()
        {
            Natives.Load();
            return Bindings.devices().Select(info => info.name).ToList();
        }

        /// <summary>Speeds up training on a CPU device: asks for 512-bit vectors if the processor
        /// has them and the driver gains by them (Mesa 25 and later). Call it before the first
        /// device is opened.</summary>
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

    /// <summary>Mean loss and accuracy over an epoch.</summary>
    public sealed class Scores
    {
        internal Scores(long samples, double loss, double accuracy)
        {
            Samples = samples;
            Loss = loss;
            Accuracy = accuracy;
        }

        /// <summary>Number of samples over which the means are taken.</summary>
        public long Samples { get; }

        public double Loss { get; }
        public double Accuracy { get; }
    }

    /// <summary>The arguments of <see cref="Trainer.StepEnded"/>.</summary>
    public sealed class StepEndedEventArgs : EventArgs
    {
        /// <summary>Counts from 0.</summary>
        public int Epoch { get; internal set; }

        public Step Step { get; internal set; }
    }

    /// <summary>The arguments of <see cref="Trainer.EpochEnded"/>. Set <see cref="Stop"/> to end
    /// the run.</summary>
    public sealed class EpochEndedEventArgs : EventArgs
    {
        public int Epoch { get; internal set; }
        public Scores Training { get; internal set; }

        /// <summary>Null if no validation pipeline was given or its evaluation was
        /// stopped.</summary>
        public Scores Validation { get; internal set; }

        public bool Stop { get; set; }
    }

    /// <summary>Trains a model on a Vulkan device, in a training loop of the program's own; <see
    /// cref="JobRun.Trainer"/> is the one that a job's run trains. A trainer serves one thread at a
    /// time: a call during a call of another thread fails with <see
    /// cref="ErrorCode.State"/>.</summary>
    public sealed class Trainer : IDisposable
    {
        private readonly TrainerHandle handle;
        private readonly string shown;

        public Device Device { get; }

        /// <summary>Raised by <see cref="Fit"/> after each epoch.</summary>
        public event EventHandler<EpochEndedEventArgs> EpochEnded;

        /// <summary>Raised by <see cref="Fit"/> for each finished step, for progress.</summary>
        public event EventHandler<StepEndedEventArgs> StepEnded;

        /// <summary>Raised by <see cref="Evaluate"/>, also within <see cref="Fit"/>, after each
        /// batch, on the thread that evaluates. A handler must not use the trainer. Its exception
        /// ends the evaluation and is thrown again. If it stops the evaluation, Evaluate fails with
        /// <see cref="ErrorCode.Cancelled"/>, and Fit continues without that evaluation.</summary>
        public event EventHandler<EvaluationEventArgs> EvaluationProgressed;

        /// <summary><paramref name="totalSteps"/> is the step at which decaying schedules end; 0:
        /// unknown.</summary>
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

        // The trainer of a run.
        internal Trainer(Device device, TrainerHandle handle, string shown)
        {
            Device = device;
            this.handle = handle;
            this.shown = shown;
        }

        /// <summary>Creates a trainer with a constant learning rate.</summary>
        public Trainer(Device device, Model model, Spec optimizer, double learningRate, long seed = 0)
            : this(device, model, optimizer, Schedules.Schedule(learningRate), seed) { }

        /// <summary>Starts a step on a batch (by default with the fields "image" and "label") and
        /// returns while the device works. Take the results inside of the loop, with <see
        /// cref="Result"/>: a loss or gradient that is not finite is reported only there, and until
        /// then later steps change nothing.</summary>
        public void Step(Batch batch) => Batch.Given(batch, nameof(batch)).With(fields => handle.step(fields));

        /// <summary>Returns the oldest finished step that has not been returned yet; null if there
        /// is none.</summary>
        public Step Result(bool wait = true)
        {
            using (StepResult r = handle.result(wait)) return r.valid ? new Step(r) : null;
        }

        /// <summary>Runs the model in training mode and returns the outputs of the last layer as
        /// the field "output". With <see cref="Backward"/> and <see cref="Update"/> this makes a
        /// step pass by pass, instead of <see cref="Step"/>: for a loss that the program computes,
        /// or for models whose gradients flow into each other. With <paramref
        /// name="inputGradients"/>, <see cref="BackwardToInputs"/> can return the gradients of the
        /// inputs.</summary>
        public Batch Forward(Batch batch, bool inputGradients = false) =>
            new Batch(Batch.Given(batch, nameof(batch)).With(fields => handle.forward(fields, inputGradients)));

        /// <summary>Computes the gradients of the parameters from the gradient of the loss with
        /// respect to the latest output: the field "output", in the same shape. Call it once per
        /// <see cref="Forward"/>, before the weights change. The gradients replace those since the
        /// last update; with <paramref name="accumulate"/>, they are added to them.</summary>
        public void Backward(Batch outputGradient, bool accumulate = false) =>
            Batch.Given(outputGradient, nameof(outputGradient)).With(fields => handle.backward(fields, accumulate));

        /// <summary>Does the same as <see cref="Backward"/> after <see cref="Forward"/> with
        /// inputGradients, and returns the gradients of the inputs by their names.</summary>
        public Batch BackwardToInputs(Batch outputGradient, bool accumulate = false) =>
            new Batch(Batch.Given(outputGradient, nameof(outputGradient))
                .With(fields => handle.backward_to_inputs(fields, accumulate)));

        /// <summary>Updates the weights with the gradients since the last update. The result has no
        /// loss and no accuracy: they are NaN.</summary>
        public Step Update()
        {
            using (StepResult r = handle.update()) return new Step(r);
        }

        /// <summary>Returns a copy of the gradients since the last update by the names of the
        /// parameters, or of the one of that name.</summary>
        public Batch Gradients(string name = "") => new Batch(handle.gradients(name));

        /// <summary>Replaces the gradients that are fields of <paramref
        /// name="gradients"/>.</summary>
        public void SetGradients(Batch gradients) =>
            Batch.Given(gradients, nameof(gradients)).With(fields => handle.set_gradients(fields));

        /// <summary>Evaluates one whole epoch of a pipeline. If an epoch has begun, its rest is
        /// skipped and the next one is evaluated.</summary>
        public Scores Evaluate(Pipeline pipeline) => RunEvaluation(pipeline, EvaluationProgressed);

        private Scores RunEvaluation(Pipeline pipeline, EventHandler<EvaluationEventArgs> handler)
        {
            if (pipeline == null) throw new ArgumentNullException(nameof(pipeline));
            pipeline.StartFunctions();
            using (EvalResult r = Reporting.Run(
                Reporting.Of(this, handler), progress => pipeline.Explained(() => handle.evaluate(pipeline.Handle, progress)),
                out var failure))
            {
                Reporting.ThrowAgain(failure);
                return new Scores(r.samples, r.loss, r.accuracy);
            }
        }

        /// <summary>Returns the outputs of the last layer for a batch as the field "output": [N,
        /// outputs].</summary>
        public Batch Predict(Batch batch) => new Batch(Batch.Given(batch, nameof(batch)).With(handle.predict));

        /// <summary>Decodes the outputs of a detector, as returned by <see cref="Predict"/>, into
        /// the field "boxes": [N, maxDetections, 6] with label, left, top, right, bottom (shares of the
        /// image) and score, the best first. Unused rows have the label -1.</summary>
        public static Batch Detections(Batch outputs, double scoreThreshold = 0.5, double iouThreshold = 0.45,
                                       int maxDetections = 100) =>
            new Batch(Batch.Given(outputs, nameof(outputs)).With(
                fields => TrainerHandle.detections(fields, scoreThreshold, iouThreshold, maxDetections)));

        /// <summary>Trains for <paramref name="epochs"/> epochs, at least one, and returns the
        /// scores of each.</summary>
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

        // Returns null if a handler stopped it.
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

        // The next call is not to count steps of one that failed. What went wrong in them comes second.
        private void ForgetSteps()
        {
            try
            {
                while (Result(true) != null) { }
            }
            catch (EchoTrainException) { }
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
            try
            {
                foreach (Batch batch in pipeline)
                {
                    Step(batch);
                    collect(false);
                }
                collect(true);
            }
            catch
            {
                ForgetSteps();
                throw;
            }
            if (samples == 0)
                throw new EchoTrainException(ErrorCode.State, "epoch " + (epoch + 1) + " gave no batch: there are fewer " +
                    "samples than a batch holds, or the pipeline's epochs are over", null);
            return new Scores((long)samples, loss / samples, accuracy / samples);
        }

        /// <summary>Returns a copy of all parameters and running statistics as fields of a batch,
        /// or of the one of that name. Needs a step or a prediction first.</summary>
        public Batch Weights(string name = "") => new Batch(handle.weights(name));

        /// <summary>Replaces the weights that are fields of <paramref name="weights"/>. The
        /// optimizer's state is kept.</summary>
        public void SetWeights(Batch weights) =>
            Batch.Given(weights, nameof(weights)).With(fields => handle.set_weights(fields));

        /// <summary>Changes a hyperparameter of the optimizer ("momentum", "beta1", "beta2",
        /// "decay", "weight_decay") or the loss ("label_smoothing") from the next step on, at no
        /// cost. Checkpoints keep the value.</summary>
        public void SetHyperparameter(string name, double value) => handle.set_hyperparameter(name, value);

        /// <summary>Returns layers, shapes and parameters as a table. Needs a step or a prediction
        /// first.</summary>
        public string Summary() => handle.summary("text");

        /// <summary>Measures where the time of a training step on <paramref name="batch"/> goes,
        /// over <paramref name="steps"/> steps, which train. <paramref name="format"/> is "text"
        /// (for people), "json" or "trace" (one step, for chrome://tracing).</summary>
        public string Profile(Batch batch, int steps = 10, string format = "text") =>
            Batch.Given(batch, nameof(batch)).With(fields => handle.profile(fields, steps, format));

        /// <summary>Saves a checkpoint in a new folder below <paramref name="directory"/>: weights,
        /// optimizer state and step count.</summary>
        public void Save(string directory) => handle.save(directory);

        /// <summary>Exports the model with its weights as an ONNX file, for other runtimes; images
        /// are [N, H, W, C] as here.</summary>
        public void ExportOnnx(string path) => handle.export_onnx(path);

        /// <summary>Loads the newest intact checkpoint below <paramref
        /// name="directory"/>.</summary>
        public void Load(string directory) => handle.load(directory);

        /// <summary>Loads initial weights that PyTorch trained: a safetensors file of a state_dict.
        /// Call it before the first batch. <paramref name="names"/> is a JSON object that maps
        /// prefixes of the model's names to those in the file.</summary>
        public void LoadPytorch(string path, string names = "{}") => handle.load_pytorch(path, names);

        public override string ToString() => shown;

        public void Dispose() => handle.close();
    }

    /// <summary>The kinds of events of a job's run.</summary>
    public enum JobEventKind { Progress, Evaluation, Checkpoint, End }

    /// <summary>The state of a job's run at one moment. Loss and accuracy are means over the steps
    /// since the previous event.</summary>
    public sealed class JobEvent
    {
        internal JobEvent(Event e)
        {
            Kind = (JobEventKind)e.kind;
            Step = e.step;
            Epoch = e.epoch;
            TotalSteps = e.total_steps;
            Seconds = e.seconds;
            Loss = e.loss;
            Accuracy = e.accuracy;
            LearningRate = e.learning_rate;
            ExamplesPerSecond = e.examples_per_second;
            DeviceWaitShare = e.device_wait_share;
            Examples = e.examples;
            Fresh = e.fresh;
            Echoed = e.echoed;
            BadRecords = e.bad_records;
            EvalLoss = e.eval_loss;
            EvalAccuracy = e.eval_accuracy;
            TargetReached = e.target_reached;
        }

        public JobEventKind Kind { get; }
        public long Step { get; }
        public long Epoch { get; }

        /// <summary>The step at which steps, epochs or fresh of the job's section train end the run
        /// (an estimate if samples are echoed), or the planned number of steps; 0:
        /// unknown.</summary>
        public long TotalSteps { get; }

        /// <summary>Seconds of training, without evaluation, checkpoints and compiling in the first
        /// step.</summary>
        public double Seconds { get; }

        public double Loss { get; }
        public double Accuracy { get; }
        public double LearningRate { get; }
        public double ExamplesPerSecond { get; }

        /// <summary>Share of the training time so far in which the device was idle.</summary>
        public double DeviceWaitShare { get; }

        /// <summary>Number of examples since the start of the run.</summary>
        public long Examples { get; }

        /// <summary>Number of fresh examples since the start of the run.</summary>
        public long Fresh { get; }

        /// <summary>Number of echoed examples since the start of the run.</summary>
        public long Echoed { get; }

        /// <summary>Number of distinct bad records, however often each was met.</summary>
        public long BadRecords { get; }

        /// <summary>The loss of the latest evaluation.</summary>
        public double EvalLoss { get; }

        /// <summary>The accuracy of the latest evaluation.</summary>
        public double EvalAccuracy { get; }

        /// <summary>Whether an evaluation has reached target_accuracy or target_loss of the job's
        /// section evaluation.</summary>
        public bool TargetReached { get; }
    }

    /// <summary>How a job's run begins.</summary>
    public enum JobStart
    {
        /// <summary>From the beginning. A folder that holds an earlier run is an error
        /// (ErrorCode.State).</summary>
        New,
        /// <summary>From the newest checkpoint.</summary>
        Resume,
        /// <summary>From the beginning, in place of an earlier run, whose files are removed when
        /// the first step is done.</summary>
        Overwrite,
        /// <summary>With the weights of the newest checkpoint, for <see cref="JobRun.Evaluate"/>
        /// and <see cref="JobRun.Trainer"/>. The run has no events, and nothing is
        /// written.</summary>
        Evaluate,
        /// <summary>From the beginning, with nothing written, for <see
        /// cref="JobRun.Profile"/>.</summary>
        Trial
    }

    /// <summary>A job: <c>foreach (JobEvent e in Job.Load("job.json").Run(new Device())) ...</c>
    /// runs it.</summary>
    public sealed class Job : IDisposable
    {
        internal JobHandle Handle { get; }

        private Job(string text, bool isJson, string[] overrides)
        {
            if (overrides == null || overrides.Contains(null)) throw new ArgumentNullException(nameof(overrides));
            Natives.Load();
            Handle = new JobHandle(text, isJson, new Strings(overrides));
        }

        /// <summary>Reads a job file. <paramref name="overrides"/> are strings
        /// "key=value".</summary>
        public static Job Load(string path, params string[] overrides) => new Job(path, false, overrides);

        public static Job Parse(string json, params string[] overrides) => new Job(json, true, overrides);

        public string Json => Handle.json();

        /// <summary>The folder that a run writes into; null if it writes nothing.</summary>
        public string OutputDir
        {
            get
            {
                string folder = Handle.output_dir();
                return folder.Length == 0 ? null : folder;
            }
        }

        /// <summary>Measures the job for a few seconds and advises, as JSON, whether echoing helps,
        /// where an echo node should stand and with which factor, and what else would help first.
        /// The member "text" is for people; "job" is the changed job. <paramref name="seconds"/> is
        /// the length of each measurement. With <paramref name="check"/> both jobs also run in
        /// turns, and "checked" has the outcomes. Writes nothing. <paramref name="progress"/> is
        /// called often, and told how often it was before, and what is being done, or "" while that
        /// continues; if it stops, this fails with the code Cancelled.</summary>
        public string Advise(Device device, double seconds = 3, bool check = false,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken),
            EventHandler<ProgressEventArgs> progress = null)
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            Reporting.Handler handler = Reporting.Of(this, progress);
            return Reporting.Run(
                (done, total, text) => !cancellation.IsCancellationRequested && (handler == null || handler(done, total, text)),
                told => Handle.advise(device.Handle, seconds, check, told), out _);
        }

        /// <summary>Releases the job's memory. Its runs remain usable.</summary>
        public void Dispose() => Handle.close();

        public override string ToString() => Handle.is_closed() ? "Job(closed)" : "Job(" + Json + ")";

        /// <summary>Starts a run with JobStart.Resume or JobStart.New; enumerating it
        /// trains.</summary>
        public JobRun Run(Device device, bool resume = false,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken))
            => Run(device, resume ? JobStart.Resume : JobStart.New, cancellation);

        /// <summary>Starts a run that begins as <paramref name="start"/> says. The folder
        /// output.dir holds one run; if a job file names none, it is runs/ and the stem of the
        /// file's name. A folder in use is an error. The run holds its folder until it ends or is
        /// disposed of. <paramref name="cancellation"/> stops the run in order. <paramref
        /// name="evaluation"/> is called for the batches of evaluations; if it stops one, the run
        /// continues without it.</summary>
        public JobRun Run(Device device, JobStart start,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken),
            EventHandler<EvaluationEventArgs> evaluation = null)
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            WarnOfNoOutput(start);
            return new JobRun(new RunHandle(device.Handle, Handle, (int)start), device, cancellation, evaluation,
                              new LentTransport.Failures());
        }

        /// <summary>Starts a run as one of several ranks, which all start at the same time, over a
        /// transport of the program. The run then owns the transport.</summary>
        public JobRun Run(Device device, JobStart start, Transport transport,
            System.Threading.CancellationToken cancellation = default(System.Threading.CancellationToken))
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            if (transport == null) throw new ArgumentNullException(nameof(transport));
            var failures = new LentTransport.Failures();
            Native.Transport lent = LentTransport.Lend(transport, failures);
            RunHandle run = failures.Explained(() =>
                new RunHandle(device.Handle, Handle, (int)start, transport.Rank, transport.Size, lent));
            WarnOfNoOutput(start);  // not before: if the job is disposed of, the transport has to be closed
            return new JobRun(run, device, cancellation, null, failures);
        }

        private void WarnOfNoOutput(JobStart start)
        {
            if ((start == JobStart.New || start == JobStart.Overwrite) && Handle.forgets_output())
                System.Diagnostics.Trace.TraceWarning("this run saves nothing, no checkpoint and no metrics: the job " +
                    "has no output.dir (\"\" says that this is meant)");
        }
    }
}
