// Python: exceptions are made by a factory that the package registers. Fields can be read by NumPy
// and DLPack, and can share the memory of a Python object.

%begin %{
#include "python_threads.h"
%}

%{
#include <climits>
#include <cstdint>

// Makes the exception for (status, message). The package sets it once.
static PyObject* echotrain_error_factory = NULL;

static void echotrain_raise(int status, const char* message) {
  PyObject* error =
      echotrain_error_factory
          ? PyObject_CallFunction(echotrain_error_factory, "is", status, message)
          : NULL;
  if (!error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, message);
    return;
  }
  PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_DECREF(error);
}

// Sets a TypeError: the argument `name` is no `expected` ("a str").
static void echotrain_wrong_type(PyObject* given, const char* name, const char* expected) {
  PyObject* type = PyObject_GetAttrString((PyObject*)Py_TYPE(given), "__name__");
  if (type) PyErr_Format(PyExc_TypeError, "argument '%s' is %s, not %U: %.200R", name, expected, type, given);
  Py_XDECREF(type);
}

// Converts the argument `name` to UTF-8. Returns false with a Python error set if `given` is no
// str, or has no UTF-8 form (an unpaired surrogate).
static bool echotrain_utf8(PyObject* given, const char* name, std::string& text) {
  if (!PyUnicode_Check(given)) {
    echotrain_wrong_type(given, name, "a str");
    return false;
  }
  PyObject* bytes = PyUnicode_AsUTF8String(given);
  if (!bytes) {
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return false;
    PyErr_Format(PyExc_UnicodeError, "argument '%s' is %.200R, which cannot be written as UTF-8", name, given);
    return false;
  }
  text.assign(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes));
  Py_DECREF(bytes);
  return true;
}

// Converts the argument `name`, an int or what stands for one, such as a NumPy integer. Returns
// false with a Python error set if it is none or outside of the limits.
static bool echotrain_integer(PyObject* given, const char* name, long long least, long long most,
                              long long& number) {
  PyObject* index = PyNumber_Index(given);
  if (!index) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    PyErr_Clear();
    echotrain_wrong_type(given, name, "an int");
    return false;
  }
  int overflow = 0;
  number = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (!overflow && number >= least && number <= most) return true;
  PyErr_Format(PyExc_OverflowError, "argument '%s' is %.200R; it must lie in [%lld, %lld]", name, given, least,
               most);
  return false;
}

// Converts the argument `name`, a float or what stands for one, such as an int or a NumPy number.
// Returns false with a Python error set if it is none.
static bool echotrain_number(PyObject* given, const char* name, double& number) {
  number = PyFloat_AsDouble(given);
  if (number != -1 || !PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyErr_Clear();
  echotrain_wrong_type(given, name, "a float");
  return false;
}

// Converts the argument `name` as Python does in conditions, except that a str is no bool: "no" would
// be True. Returns false with a Python error set if it is none.
static bool echotrain_truth(PyObject* given, const char* name, bool& truth) {
  if (PyUnicode_Check(given)) {
    echotrain_wrong_type(given, name, "a bool");
    return false;
  }
  const int found = PyObject_IsTrue(given);
  truth = found == 1;
  return found >= 0;
}

// Releases a reference, from any thread. Does nothing once the interpreter is gone.
static void echotrain_release_object(void* object) {
  if (!Py_IsInitialized()) return;
  const echotrain::python::Locked lock;
  Py_DECREF((PyObject*)object);
}

// The struct that NumPy's array interface reads through __array_struct__, and the object that
// provides it: a field that keeps its memory. It is written by hand rather than as a SWIG proxy,
// because every batch goes through it.
struct echotrain_array_interface {
  int two;  // always 2, as a check
  int rank;
  char kind;
  int item_bytes;
  int flags;
  Py_ssize_t *shape, *strides;
  void* data;
  PyObject* unused;
};

struct echotrain_field {
  PyObject_HEAD
  echotrain::facade::Tensor* tensor;
  echotrain_array_interface interface;
  Py_ssize_t shape[ETR_MAX_RANK], strides[ETR_MAX_RANK];
};

static void echotrain_field_free(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete ((echotrain_field*)self)->tensor;
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static void echotrain_field_capsule_destroyed(PyObject* capsule) {
  Py_XDECREF((PyObject*)PyCapsule_GetContext(capsule));
}

static PyObject* echotrain_field_array_struct(PyObject* self, void*) {
  PyObject* capsule = PyCapsule_New(&((echotrain_field*)self)->interface, NULL,
                                    echotrain_field_capsule_destroyed);
  if (capsule && PyCapsule_SetContext(capsule, self) == 0) Py_INCREF(self);
  return capsule;
}

static PyObject* echotrain_field_shape(PyObject* self, void*) {
  const echotrain_array_interface& it = ((echotrain_field*)self)->interface;
  PyObject* shape = PyTuple_New(it.rank);
  for (int i = 0; shape && i < it.rank; ++i)
    PyTuple_SetItem(shape, i, PyLong_FromSsize_t(it.shape[i]));
  return shape;
}

static PyObject* echotrain_field_dtype(PyObject* self, void*) {
  return PyLong_FromLong(((echotrain_field*)self)->tensor->dtype());
}

static PyObject* echotrain_field_address(PyObject* self, void*) {
  return PyLong_FromVoidPtr(((echotrain_field*)self)->interface.data);
}

static PyGetSetDef echotrain_field_attributes[] = {
    {(char*)"__array_struct__", echotrain_field_array_struct, NULL, NULL, NULL},
    {(char*)"shape", echotrain_field_shape, NULL, NULL, NULL},
    {(char*)"dtype", echotrain_field_dtype, NULL, NULL, NULL},  // ETR_U8 and so on
    {(char*)"address", echotrain_field_address, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot echotrain_field_slots[] = {{Py_tp_dealloc, (void*)echotrain_field_free},
                                              {Py_tp_getset, echotrain_field_attributes},
                                              {0, NULL}};

static PyType_Spec echotrain_field_spec = {"echotrain.native.Field", sizeof(echotrain_field), 0,
                                           Py_TPFLAGS_DEFAULT, echotrain_field_slots};

static PyTypeObject* echotrain_field_type() {
  static PyTypeObject* type = (PyTypeObject*)PyType_FromSpec(&echotrain_field_spec);
  return type;
}

static void echotrain_capsule_destroyed(PyObject* capsule) {
  // A consumer that took the tensor has renamed the capsule and owns the tensor.
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  echotrain::facade::Tensor::release(PyCapsule_GetPointer(capsule, "dltensor"));
}
%}

%typemap(in) const std::string& (std::string utf8) {
  if (!echotrain_utf8($input, "$1_name", utf8)) SWIG_fail;
  $1 = &utf8;
}
%typemap(freearg) const std::string& ""
%typemap(in) int64_t (long long number) {
  if (!echotrain_integer($input, "$1_name", INT64_MIN, INT64_MAX, number)) SWIG_fail;
  $1 = number;
}
%typemap(in) int (long long number) {
  if (!echotrain_integer($input, "$1_name", INT_MIN, INT_MAX, number)) SWIG_fail;
  $1 = (int)number;
}
%typemap(in) double {
  if (!echotrain_number($input, "$1_name", $1)) SWIG_fail;
}
%typemap(in) bool {
  if (!echotrain_truth($input, "$1_name", $1)) SWIG_fail;
}

%exception {
  try {
    $action
  } catch (const echotrain::Error& error) {
    SWIG_PYTHON_THREAD_BEGIN_BLOCK;
    echotrain_raise(error.status(), error.what());
    SWIG_PYTHON_THREAD_END_BLOCK;
    SWIG_fail;
  } catch (const std::exception& error) {
    SWIG_PYTHON_THREAD_BEGIN_BLOCK;
    echotrain_raise(ETR_INTERNAL, error.what());
    SWIG_PYTHON_THREAD_END_BLOCK;
    SWIG_fail;
  }
}

// These functions keep the GIL, because they do not wait. The end of a batch may run the deleter of
// another library's tensor, which may be called with the GIL or without it.
%nothread echotrain::facade::BatchHandle::~BatchHandle;
%nothread echotrain::facade::PipelineHandle::ended;
%nothread echotrain_set_error_factory;
%nothread echotrain_field_of;
%nothread echotrain_dlpack_capsule;
%nothread echotrain_wrap_object;

%inline %{
static void echotrain_set_error_factory(PyObject* factory) {
  Py_INCREF(factory);
  Py_XDECREF(echotrain_error_factory);
  echotrain_error_factory = factory;
}

// Returns the field as an object that NumPy can read and that keeps the field's memory.
static PyObject* echotrain_field_of(const echotrain::facade::BatchHandle* batch,
                                    const std::string& field) {
  PyTypeObject* type = echotrain_field_type();
  if (!type) return NULL;
  std::unique_ptr<echotrain::facade::Tensor> tensor(batch->tensor(field));
  auto* made = (echotrain_field*)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (!made) return NULL;
  const int dtype = tensor->dtype();
  const int bytes = echotrain::facade::element_bytes(dtype);
  const int readable = 0x1 | 0x100 | 0x200;  // C-contiguous, aligned, native byte order
  const int rank = tensor->rank();
  Py_ssize_t stride = bytes;
  for (int i = rank - 1; i >= 0; --i) {
    made->shape[i] = (Py_ssize_t)tensor->extents()[i];
    made->strides[i] = stride;
    stride *= made->shape[i];
  }
  made->interface = {2, rank, "uifu"[dtype], bytes, readable, made->shape, made->strides,
                      (void*)tensor->address(), NULL};
  made->tensor = tensor.release();
  return (PyObject*)made;
}

// Returns the field as a "dltensor" capsule.
static PyObject* echotrain_dlpack_capsule(echotrain::facade::BatchHandle* batch,
                                          const std::string& field) {
  return PyCapsule_New(batch->dlpack(field), "dltensor", echotrain_capsule_destroyed);
}

// Sets a field that shares the memory of `owner` and keeps `owner` alive.
static void echotrain_wrap_object(echotrain::facade::BatchHandle* batch, const std::string& field,
                                  int dtype, const std::vector<long long>& shape, uint64_t address,
                                  PyObject* owner) {
  const etr_tensor t = echotrain::facade::BatchHandle::describe(dtype, shape, address);
  const char* const c_field = echotrain::detail::c_string(field, "field");
  const auto use = batch->get();  // throws if the batch is closed, before the reference is taken
  Py_INCREF(owner);
  echotrain::check(etr_batch_wrap(use->get(), c_field, &t, echotrain_release_object,
                                  owner));
}
%}

// The C++ types of what follows, in native.py. ../python/stub.py makes native.pyi of them.
%feature("python:annotations", "c");
