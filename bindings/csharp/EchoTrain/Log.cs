using System;
using System.Threading;
using EchoTrain.Native;

namespace EchoTrain
{
    public enum LogLevel { Debug, Info, Warning, Error }

    /// <summary>What a log line is about. A run can log many lines about bad records that it
    /// drops.</summary>
    public enum LogSubject { Other, BadRecord, Partition }

    /// <summary>The arguments of <see cref="Log.Written"/>: one log line.</summary>
    public sealed class LogEventArgs : EventArgs
    {
        internal LogEventArgs(LogLevel level, LogSubject subject, string message)
        {
            Level = level;
            Subject = subject;
            Message = message;
        }

        public LogLevel Level { get; }
        public LogSubject Subject { get; }
        public string Message { get; }
    }

    /// <summary>The library's log lines.</summary>
    /// <example><code>Log.Written += (sender, line) =>
    /// {
    ///     if (line.Level >= LogLevel.Warning) Console.Error.WriteLine(line.Message);
    /// };</code></example>
    public static class Log
    {
        private static readonly object start = new object();
        private static EventHandler<LogEventArgs> written;
        private static Thread reader;

        /// <summary>Raised for each log line of the process, in order, on a thread of its own.
        /// Lines before the first handler is added are dropped. A handler's exception is dropped,
        /// too.</summary>
        public static event EventHandler<LogEventArgs> Written
        {
            add
            {
                lock (start)
                {
                    written += value;
                    if (reader != null) return;
                    Natives.Load();
                    LogQueue.open();
                    reader = new Thread(Read) { IsBackground = true, Name = "echotrain-log" };
                    reader.Start();
                    AppDomain.CurrentDomain.ProcessExit += (sender, nothing) =>
                    {
                        LogQueue.close();  // the reader ends after the lines that are left
                        reader.Join(1000);
                    };
                }
            }
            remove
            {
                lock (start) written -= value;
            }
        }

        private static void Read()
        {
            while (true)
            {
                using (LogLine line = LogQueue.next())
                {
                    if (!line.valid) return;
                    try
                    {
                        written?.Invoke(null, new LogEventArgs((LogLevel)line.level, (LogSubject)line.subject,
                                                               line.message));
                    }
                    catch (Exception)
                    {
                        // It would end the process; the next line may fare better.
                    }
                }
            }
        }
    }
}
