using System;
using System.IO;
using EchoTrain;

/// Studies of a small job.
public static partial class Behaviour
{
    private static void StudyTests()
    {
        Test("a study runs and goes on", StudyRuns);
        Test("a study is stopped", StudyStopped);
    }

    private static string StudyFile(long steps)
    {
        string job = JobJson();
        int begin = "{'pipeline': ".Length;
        string pipeline = job.Substring(begin, job.IndexOf(", \"model\"") - begin);
        string folder = Path.Combine(Path.GetTempPath(), Path.GetRandomFileName());
        Directory.CreateDirectory(folder);
        string path = Path.Combine(folder, "small.json");
        File.WriteAllText(path, "{\"job\": " + job.Substring(0, job.Length - 1) + ", \"evaluation\": {\"pipeline\": " +
            pipeline + "}}, \"budget\": {\"steps\": " + steps + "}, \"evaluate\": {\"every_steps\": " + steps +
            "}, \"search\": {\"trials\": 2, \"space\": {\"schedule.learning_rate\": {\"from\": 0.001, \"to\": 0.1}}}}");
        return path;
    }

    private static void StudyRuns()
    {
        string path = StudyFile(4), folder = Path.GetDirectoryName(path), trials = Path.Combine(folder, "out");
        for (int part = 0; part < 2; ++part)
            using (Study study = Study.Load(path, "optimizer.momentum=0.5"))
            {
                Expect(study.OutputDir == "runs/studies/small", study.OutputDir);
                Expect(study.Json.Contains("optimizer.momentum=0.5"), study.Json);
                study.Start(MakeDevice(), trials, 2);
                int ended = 0;
                string last = null;
                for (string told; (told = study.NextEvent(1)) != null; last = told)
                    if (told.StartsWith("{\"kind\":\"trial\"")) ++ended;
                Expect(ended == (part == 0 ? 2 : 0), ended);
                Expect(last.StartsWith("{\"kind\":\"end\",\"done\":2,"), last);
                study.WriteReport(trials);
                Expect(new FileInfo(Path.Combine(trials, "report.html")).Length > 1000, trials);
                Expect(study.Results(trials).Contains("\"trials\":2"), study.Results(trials));
            }
        Directory.Delete(folder, true);
    }

    private static void StudyStopped()
    {
        string path = StudyFile(1000000000), folder = Path.GetDirectoryName(path);
        Study study = Study.Load(path);
        study.Start(MakeDevice(), Path.Combine(folder, "out"), 1);
        study.NextEvent(0.1);
        study.Stop();
        string last = null;
        for (string told; (told = study.NextEvent(1)) != null;) last = told;
        Expect(last.StartsWith("{\"kind\":\"end\",\"done\":0,"), last);
        study.Dispose();
        FailsWith(ErrorCode.State, "the study is closed", () => study.Results().ToString());
        FailsWith(ErrorCode.InvalidArgument, "neither a section", () => Study.Load(path, "no key=value"));
        Directory.Delete(folder, true);
    }
}
