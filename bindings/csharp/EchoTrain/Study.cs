using System;
using System.Linq;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>A study: many trials of jobs that compare conditions. Its folder keeps every
    /// finished trial: a study that is run again continues. Events and results are JSON; see the C
    /// functions etr_study_next_event and etr_study_results. A study serves one thread at a time,
    /// except for <see cref="Results"/>, <see cref="WriteReport"/>, <see cref="Stop"/> and
    /// <see cref="Dispose"/>.</summary>
    /// <example><code>using (Study study = Study.Load("study.json"))
    /// {
    ///     study.Start(device);
    ///     while (study.NextEvent(1) != null) { }
    /// }</code></example>
    public sealed class Study : IDisposable
    {
        private readonly StudyHandle handle;

        private Study(string path, string[] overrides)
        {
            if (overrides == null || overrides.Contains(null)) throw new ArgumentNullException(nameof(overrides));
            Natives.Load();
            handle = new StudyHandle(path, new Strings(overrides));
        }

        /// <summary>Reads a study file. <paramref name="overrides"/> are strings "key=value" for
        /// the jobs of all trials.</summary>
        public static Study Load(string path, params string[] overrides) => new Study(path, overrides);

        /// <summary>The study with jobs, labels and overrides filled in.</summary>
        public string Json => handle.json();

        /// <summary>The folder that the study writes into unless <see cref="Start"/> names another
        /// one.</summary>
        public string OutputDir => handle.output_dir();

        /// <summary>Prepares the study to run in <paramref name="directory"/> (empty: its own
        /// folder). <paramref name="parallel"/> is the number of trials that run at once; 0: as
        /// many as the device has room for, -1: as the study says. <paramref name="overwrite"/>
        /// runs all trials again, in place of those that the folder holds.</summary>
        public void Start(Device device, string directory = "", int parallel = -1, bool overwrite = false)
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            handle.start(device.Handle, directory, parallel, overwrite);
        }

        /// <summary>Waits for an event, for at most that many seconds, and returns it; null after
        /// the event "end".</summary>
        public string NextEvent(double seconds)
        {
            string told = handle.next_event(seconds);
            return told.Length == 0 ? null : told;
        }

        /// <summary>Returns the results by condition, from the trials that a folder (empty:
        /// that of Start) holds so far.</summary>
        public string Results(string directory = "") => handle.results(directory);

        /// <summary>Writes report.html, results.json, tables and figures into a folder (empty:
        /// that of Start), from the trials that it holds so far.</summary>
        public void WriteReport(string directory = "") => handle.write_report(directory);

        /// <summary>Ends the study soon, abandoning the trials that are running.</summary>
        public void Stop() => handle.stop();

        /// <summary>Stops the study and releases its folder.</summary>
        public void Dispose() => handle.close();
    }
}
