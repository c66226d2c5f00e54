// Python: exceptions through a class that the package registers, DLPack capsules, and fields that
// share a Python object's memory.

%{
// Makes the exception for (status, message); set once by the package.
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

// Lets go of an object from any thread; once the interpreter is gone there is nothing to let go of.
static void echotrain_release_object(void* object) {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF((PyObject*)object);
  PyGILState_Release(state);
}

static void echotrain_capsule_destroyed(PyObject* capsule) {
  // A consumer that took the tensor has renamed its capsule.
  if (!PyCapsule_IsValid(capsule, "dltensor")) return;
  echotrain::facade::Tensor::release(PyCapsule_GetPointer(capsule, "dltensor"));
}
%}

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

%nothread echotrain_set_error_factory;
%nothread echotrain_dlpack_capsule;
%nothread echotrain_wrap_object;

%inline %{
static void echotrain_set_error_factory(PyObject* factory) {
  Py_INCREF(factory);
  Py_XDECREF(echotrain_error_factory);
  echotrain_error_factory = factory;
}

// A "dltensor" capsule of a field.
static PyObject* echotrain_dlpack_capsule(echotrain::facade::BatchHandle* batch,
                                          const std::string& field) {
  return PyCapsule_New(batch->dlpack(field), "dltensor", echotrain_capsule_destroyed);
}

// A field that shares `owner`'s memory and keeps it alive.
static void echotrain_wrap_object(echotrain::facade::BatchHandle* batch, const std::string& field,
                                  int dtype, const std::vector<long long>& shape, uint64_t address,
                                  PyObject* owner) {
  const etr_tensor t = echotrain::facade::BatchHandle::describe(dtype, shape, address);
  Py_INCREF(owner);
  echotrain::check(etr_batch_wrap(batch->get().get(), field.c_str(), &t, echotrain_release_object,
                                  owner));
}
%}
