using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace EchoTrain
{
    /// <summary>A stage, layer, model, optimizer or schedule with its options. It is created by
    /// <see cref="Stages"/>, <see cref="Layers"/>, <see cref="Models"/>, <see cref="Optimizers"/>
    /// and <see cref="Schedules"/>, and validated where it is used.</summary>
    public sealed class Spec
    {
        private readonly Dictionary<string, object> options = new Dictionary<string, object>();
        private readonly List<Spec> following = new List<Spec>();

        internal Spec(string kind, string name)
        {
            Kind = kind;
            Name = name;
        }

        public string Kind { get; }
        public string Name { get; }

        /// <summary>Sets an option by its name in the schema.</summary>
        public Spec Set(string option, object value)
        {
            options[option ?? throw new ArgumentNullException(nameof(option))] = value;
            return this;
        }

        /// <summary>Adds a stage after this source, for sources within mix or zip: the stage maps
        /// the source's samples before they are combined.</summary>
        public Spec Then(Spec stage)
        {
            following.Add(stage ?? throw new ArgumentNullException(nameof(stage)));
            return this;
        }

        // The JSON form as an element of an option: an object, or a list of this source and the
        // stages that follow it.
        internal string BranchJson()
        {
            var stages = new List<string> { StageJson() };
            foreach (Spec stage in following) stages.Add(stage.StageJson());
            return following.Count == 0 ? stages[0] : "[" + string.Join(", ", stages) + "]";
        }

        private string StageJson()
        {
            var all = new Dictionary<string, object>(options) { [Kind.TrimEnd('s')] = Name };
            return Write(all);
        }

        internal string Json => Write(options);

        public override string ToString() => Name + " " + Json;

        internal static string Write(IEnumerable<KeyValuePair<string, object>> values)
        {
            var fields = new List<string>();
            foreach (var entry in values)
            {
                if (entry.Key == null) throw new ArgumentException("the name of an option is null");
                fields.Add(Text(entry.Key) + ": " + Value(entry.Key, entry.Value));
            }
            return "{" + string.Join(", ", fields) + "}";
        }

        private static string Value(string key, object value)
        {
            if (value is bool) return (bool)value ? "true" : "false";
            if (value is sbyte || value is byte || value is short || value is ushort || value is int || value is uint ||
                value is long || value is ulong || value is decimal)
                return Convert.ToString(value, CultureInfo.InvariantCulture);
            if (value is float || value is double) return Number(key, Convert.ToDouble(value));
            if (value is string) return Text((string)value);
            if (value is double[])
                return "[" + string.Join(", ", Array.ConvertAll((double[])value, n => Number(key, n))) + "]";
            if (value is Spec[])
                return "[" + string.Join(", ", Array.ConvertAll((Spec[])value, s => Element(key, s).BranchJson())) + "]";
            if (value is string[])
                return "[" + string.Join(", ", Array.ConvertAll((string[])value, s => Text(Element(key, s)))) + "]";
            if (value is long[])
                return "[" + string.Join(", ", Array.ConvertAll((long[])value, n => n.ToString(CultureInfo.InvariantCulture))) + "]";
            throw new ArgumentException("option '" + key + "' is a " + (value?.GetType().ToString() ?? "null") +
                "; options are numbers, text, booleans or arrays of double, long, string or Spec");
        }

        private static T Element<T>(string key, T element) =>
            element != null ? element : throw new ArgumentException("option '" + key + "' has a null in its array");

        private static string Number(string key, double number)
        {
            if (double.IsNaN(number) || double.IsInfinity(number))
                throw new ArgumentException("option '" + key + "' is " + number);
            return number.ToString("R", CultureInfo.InvariantCulture);
        }

        private static string Text(string text)
        {
            var line = new StringBuilder("\"");
            foreach (char c in text)
            {
                if (c == '"' || c == '\\') line.Append('\\').Append(c);
                else if (c < 0x20) line.Append("\\u").Append(((int)c).ToString("x4"));
                else line.Append(c);
            }
            return line.Append('"').ToString();
        }
    }
}
