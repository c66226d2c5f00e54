using System;
using System.Text;

namespace EchoTrain
{
    /// <summary>The status codes of the C API.</summary>
    public enum ErrorCode
    {
        InvalidArgument = -1, NotFound = -2, IO = -3, CorruptData = -4, OutOfMemory = -5, NoDevice = -6,
        Device = -7, DeviceLost = -8, Cancelled = -9, State = -10, Unsupported = -11, Internal = -12,

        /// <summary>A function of the program failed; its exception is the inner
        /// exception.</summary>
        Callback = -13,

        /// <summary>A loss or gradient was NaN or infinite; the message names what produced
        /// it.</summary>
        NotFinite = -14,

        /// <summary>A process of the group is dead, frozen or unreachable; the message says
        /// which.</summary>
        RankLost = -15
    }

    /// <summary>A failed call of the library.</summary>
    public class EchoTrainException : Exception
    {
        /// <summary>The kind of error.</summary>
        public ErrorCode Code { get; }

        public EchoTrainException(int status, string message) : this((ErrorCode)status, message, null) { }

        internal EchoTrainException(ErrorCode code, string message, Exception inner) : base(message, inner)
        {
            Code = code;
        }

        // Returns the text, and throws if native code would see another one: only the part before a
        // NUL character, or a replacement for an unpaired surrogate.
        internal static string Whole(string text, string argument)
        {
            if (text == null) throw new ArgumentNullException(argument);
            if (text.IndexOf('\0') >= 0)
                throw new EchoTrainException(ErrorCode.InvalidArgument,
                    $"argument '{argument}' has a NUL character inside, where C would cut it off", null);
            for (int i = 0; i < text.Length; i++)
            {
                if (char.IsSurrogatePair(text, i)) i++;
                else if (char.IsSurrogate(text[i]))
                    throw new EchoTrainException(ErrorCode.InvalidArgument,
                        $"argument '{argument}' has a surrogate without its other half at index {i}, which no UTF-8 text can hold",
                        null);
            }
            return text;
        }

        // Returns the text with replacements for what Whole() refuses. For texts of the program's
        // exceptions: reporting one must not fail.
        internal static string Passable(string text) =>
            Encoding.UTF8.GetString(Encoding.UTF8.GetBytes(text.Replace('\0', '?')));
    }
}
