/* Stands in front of etr_schema and adds a stage `probe`, which the library does not have: what the
 * bindings say about stages must come from the schema alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char kProbe[] =
    "[{\"name\": \"probe\", \"doc\": \"a stage of the test\", \"options\": ["
    "{\"name\": \"depth\", \"type\": \"integer\", \"required\": true, \"doc\": \"how deep\"},"
    "{\"name\": \"ways\", \"type\": \"list of numbers\", \"required\": false, \"default\": [0.5],"
    " \"doc\": \"where to\"},"
    "{\"name\": \"tone\", \"type\": \"string\", \"required\": false, \"default\": \"low\","
    " \"choices\": [\"low\", \"high\"], \"doc\": \"how it sounds\"}]},";

int32_t etr_schema(const char* kind, char** json);

int32_t etr_schema(const char* kind, char** json) {
  int32_t (*real)(const char*, char**) =
      (int32_t(*)(const char*, char**))dlsym(dlopen("libechotrain.so.0.1", RTLD_NOW), "etr_schema");
  char* text = NULL;
  char* longer = NULL;
  int32_t status = 0;
  if (!real || real == etr_schema) abort();
  status = real(kind, &text);
  if (status != 0 || strcmp(kind, "stages") != 0) {
    *json = text;
    return status;
  }
  longer = (char*)malloc(sizeof kProbe + strlen(text));
  strcpy(longer, kProbe);
  strcat(longer, strchr(text, '[') + 1);
  free(text);
  *json = longer;
  return status;
}
