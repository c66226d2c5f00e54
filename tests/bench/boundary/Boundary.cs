using System;
using System.Diagnostics;
using System.Globalization;
using System.Threading;
using EchoTrain;

/// The C# side of boundary_bench.py: see boundary.c.
static class Boundary
{
    const int Rounds = 40, WarmUp = 60, Taken = 400;
    static long sum;

    static void Images(string root)
    {
        using (var pipeline = new Pipeline(new { threads = 2, epochs = 1 })
            .Add(Stages.Folder(root), Stages.Repeat(10), Stages.Decode(), Stages.Batch(32, dropRemainder: true)))
        {
            Stopwatch clock = Stopwatch.StartNew();
            long batches = 0;
            foreach (Batch batch in pipeline)
            {
                sum += batch.Span<byte>("image")[0];
                ++batches;
            }
            Print(32 * batches / clock.Elapsed.TotalSeconds);
        }
    }

    static void Ready(string root)
    {
        var us = new double[Rounds];
        using (var pipeline = new Pipeline(new { threads = 2, epochs = 1, prefetch = 1024 })
            .Add(Stages.Folder(root), Stages.Repeat(100000), Stages.Batch(1)))
            for (int round = -WarmUp; round < Rounds; ++round)
            {
                Thread.Sleep(100);  // in which the pipeline fills its prefetch queue
                Stopwatch clock = Stopwatch.StartNew();
                for (int i = 0; i < Taken; ++i)
                    using (Batch batch = pipeline.Next()) sum += batch.Span<byte>("png")[0];
                if (round >= 0) us[round] = 1e6 * clock.Elapsed.TotalSeconds / Taken;
            }
        Array.Sort(us);
        Print(us[Rounds / 2]);
    }

    static void Print(double value) => Console.WriteLine(value.ToString("F4", CultureInfo.InvariantCulture));

    static void Main(string[] args)
    {
        if (args[0] == "images") Images(args[1]);
        else Ready(args[1]);
        Console.Error.WriteLine("checksum " + sum);
    }
}
