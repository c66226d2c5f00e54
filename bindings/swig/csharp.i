// C#: exceptions are created by a delegate that makes EchoTrainException. Calls of functions of the
// program are queued and fetched by managed threads, so that no native thread calls managed code:
// Mono waits for such threads when the process ends, and crashes now and then.

%insert(runtime) %{
#include <echotrain/echotrain.h>
typedef void (SWIGSTDCALL* EchoTrainRaise)(int status, const char* message);
static EchoTrainRaise echotrain_raise = 0;
#ifdef __cplusplus
extern "C"
#endif
SWIGEXPORT void SWIGSTDCALL EchoTrain_RegisterRaise(EchoTrainRaise raise) {
  echotrain_raise = raise;
}
// SWIG checks for a pending exception after every call whose code names
// SWIG_CSharpSetPendingException.
#define SWIG_CSharpSetPendingExceptionEchoTrain(status, message) echotrain_raise(status, message)
%}

%pragma(csharp) imclasscode=%{
  internal delegate void RaiseDelegate(int status, string message);
  [global::System.Runtime.InteropServices.DllImport("echotrain_csharp", EntryPoint = "EchoTrain_RegisterRaise")]
  private static extern void RegisterRaise(RaiseDelegate raise);
  // Kept for ever, because native code calls it.
  private static readonly RaiseDelegate raise = (status, message) =>
    SWIGPendingException.Set(new global::EchoTrain.EchoTrainException(status, message));
  internal static void RegisterErrors() { RegisterRaise(raise); }
%}

%exception {
  try {
    $action
  } catch (const echotrain::Error& error) {
    SWIG_CSharpSetPendingExceptionEchoTrain(error.status(), error.what());
    return $null;
  } catch (const std::exception& error) {
    SWIG_CSharpSetPendingExceptionEchoTrain(ETR_INTERNAL, error.what());
    return $null;
  }
}

// The marshaller passes a string only up to its first NUL character, so strings are checked first.
%typemap(csin) const std::string& "global::EchoTrain.EchoTrainException.Whole($csinput, nameof($csinput))"

%ignore echotrain::facade::MapFunction::apply;
%ignore echotrain::facade::Transport::run;
