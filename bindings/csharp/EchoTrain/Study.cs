using System;
using EchoTrain.Native;

namespace EchoTrain
{
    /// <summary>Many trials of jobs, for conditions that are to be compared. Its folder keeps every finished trial: a study that is
    /// run again goes on. Events and results are JSON, as the C functions etr_study_next_event and etr_study_results say. Used by
    /// one thread at a time, but for <see cref="Results"/>, <see cref="WriteReport"/>, <see cref="Stop"/> and <see cref="Dispose"/>.</summary>
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
            Natives.Load();
            handle = new StudyHandle(path, new Strings(overrides));
        }

        /// <summary><paramref name="overrides"/>: "key=value", for the jobs of all trials.</summary>
        public static Study Load(string path, params string[] overrides) => new Study(path, overrides);

        /// <summary>The study with jobs, labels and overrides in place.</summary>
        public string Json => handle.json();

        /// <summary>Where it writes unless <see cref="Start"/> says otherwise.</summary>
        public string OutputDir => handle.output_dir();

        /// <summary>Prepares to run it in <paramref name="directory"/> (empty: its own folder). <paramref name="parallel"/>: trials
        /// at once; 0: as the device has room, -1: as the study says. <paramref name="overwrite"/> runs all trials again, in place
        /// of those that the folder holds.</summary>
        public void Start(Device device, string directory = "", int parallel = -1, bool overwrite = false)
        {
            if (device == null) throw new ArgumentNullException(nameof(device));
            handle.start(device.Handle, directory, parallel, overwrite);
        }

        /// <summary>What there is to tell, after so many seconds at most; null after the event "end".</summary>
        public string NextEvent(double seconds)
        {
            string told = handle.next_event(seconds);
            return told.Length == 0 ? null : told;
        }

        /// <summary>Of the conditions, from the trials that a folder (empty: its own) holds so far.</summary>
        public string Results(string directory = "") => handle.results(directory);

        /// <summary>Writes report.html, results.json, tables and figures into a folder (empty: its own), from the trials that it
        /// holds so far.</summary>
        public void WriteReport(string directory = "") => handle.write_report(directory);

        /// <summary>Ends it soon, without the trials that are running.</summary>
        public void Stop() => handle.stop();

        /// <summary>Stops it and lets go of its folder.</summary>
        public void Dispose() => handle.close();
    }
}
