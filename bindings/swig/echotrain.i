// One interface for Python, Java and C#; the differences are in LANGUAGE.i.
%module(directors="1") native

%{
#include "facade.h"
#include "log.h"
#include "server.h"
#include "study.h"
%}

%include <stdint.i>
%include <std_string.i>
%include <std_vector.i>
#if defined(SWIGCSHARP)
// All of this is internal: programs use the idiomatic layer.
%typemap(csclassmodifiers) SWIGTYPE, SWIGTYPE *, SWIGTYPE &, SWIGTYPE [], SWIGTYPE (CLASS::*)
  "internal class"
%typemap(csclassmodifiers) std::vector<std::string>, std::vector<long long>,
  std::vector<echotrain::facade::DeviceInfo> "internal class"
%pragma(csharp) moduleclassmodifiers="internal class"
%pragma(csharp) imclassclassmodifiers="internal class"
#endif

// The rules for strings in C# apply to lists of strings, too.
#if defined(SWIGJAVA)
%include "java.i"
#elif defined(SWIGCSHARP)
%include "csharp.i"
#endif

#if !defined(SWIGJAVA)  // where they are arrays
%template(Strings) std::vector<std::string>;
%template(Extents) std::vector<long long>;
#endif

#if defined(SWIGPYTHON)
%include "python.i"
%ignore echotrain::facade::Tensor;  // replaced by echotrain_field_of
%ignore echotrain::facade::BatchHandle::tensor;
#endif

#if !defined(SWIGCSHARP)
%feature("director") echotrain::facade::MapFunction;
%feature("director") echotrain::facade::Transport;
#endif
%feature("director") echotrain::facade::Progress;

// For C++ only.
%ignore echotrain::facade::closed;
%ignore echotrain::facade::describe;
%ignore echotrain::facade::Tensor::Tensor;
%ignore echotrain::facade::Tensor::release;
%ignore echotrain::facade::Tensor::rank;
%ignore echotrain::facade::Tensor::extents;
%ignore echotrain::facade::Told;
%ignore echotrain::facade::BatchHandle::BatchHandle(Batch&&);
%ignore echotrain::facade::BatchHandle::BatchHandle(Batch&&, bool);
%ignore echotrain::facade::BatchHandle::pass_ended;
%ignore echotrain::facade::BatchHandle::describe;
%ignore echotrain::facade::BatchHandle::get;
%ignore echotrain::facade::BatchHandle::dlpack;
%ignore echotrain::facade::PipelineHandle::PipelineHandle(Pipeline&&);
%ignore echotrain::facade::PipelineHandle::get;
%ignore echotrain::facade::ModelHandle::get;
%ignore echotrain::facade::OptimizerHandle::get;
%ignore echotrain::facade::RuntimeHandle::get;
%ignore echotrain::facade::JobHandle::get;
%ignore echotrain::facade::TrainerHandle::TrainerHandle(Trainer&&);

%nodefaultctor echotrain::facade::TransportCall;
%feature("new", "1");  // what these return as a pointer belongs to the caller
%include "transport.h"
%include "facade.h"
%include "log.h"
%include "server.h"
%include "study.h"
%feature("new", "");

%template(Devices) std::vector<echotrain::facade::DeviceInfo>;

#if defined(SWIGCSHARP)
%include "csharp_calls.i"
#endif
