using System;
using System.IO;
using System.Linq;
using System.Threading;
using EchoTrain;

/// A parameter server and its workers, threads of one process.
public static partial class Behaviour
{
    private static void ServerTests()
    {
        Test("workers train on a parameter server", Served);
        Test("a parameter server is stopped", Stopped);
    }

    private static Job ServedJob(string meeting, params string[] overrides) => SmallJob(null, new[]
    {
        "parallel={\"algorithm\": \"downpour\", \"size\": 2, \"consistency\": \"sequential\", \"timeout\": 30, " +
            "\"rendezvous\": \"file:" + meeting + "\"}"
    }.Concat(overrides).ToArray());

    private static string Meeting() =>
        Directory.CreateDirectory(Path.Combine(Path.GetTempPath(), Path.GetRandomFileName())).FullName;

    private static void Served()
    {
        string meeting = Meeting();
        Job job = ServedJob(meeting);
        var outcomes = new object[2];
        var both = new Barrier(2);
        Thread[] workers = Enumerable.Range(0, 2).Select(i => new Thread(() =>
        {
            try
            {
                JobRun run = job.Run(MakeDevice());
                both.SignalAndWait(60000);  // the server ends when all who have come have finished
                outcomes[i] = run.Last().Step;
            }
            catch (Exception error)
            {
                outcomes[i] = error;
            }
        })).ToArray();
        using (var server = new Server(job))
        {
            Expect(!server.Wait(0), "nobody has come");
            foreach (Thread worker in workers) worker.Start();
            Expect(server.Wait(120), "the workers do not end");
            ServerStatus status = server.Status;
            Expect(status.Joined == 2 && status.Finished == 2 && status.Workers == 0, status.Joined);
            Expect(status.Updates == 12, status.Updates);
        }
        foreach (Thread worker in workers) Expect(worker.Join(60000), "a worker hangs");
        Expect(outcomes.All(outcome => outcome is long && (long)outcome == 6), string.Join("\n", outcomes));
        Directory.Delete(meeting, true);
    }

    private static void Stopped()
    {
        string meeting = Meeting();
        var server = new Server(ServedJob(meeting));
        server.Stop();
        Expect(server.Wait(60), "it goes on");
        server.Dispose();
        FailsWith(ErrorCode.State, "the server is closed", () => server.Status.ToString());
        FailsWith(ErrorCode.InvalidArgument, "shard 3 of 1", () => new Server(ServedJob(meeting), 3));
        FailsWith(ErrorCode.InvalidArgument, "parallel.algorithm",
                  () => new Server(ServedJob(meeting, "parallel.algorithm=synchronous")));
        Directory.Delete(meeting, true);
    }
}
