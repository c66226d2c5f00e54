# Packs a folder as a NuGet package, an Open Packaging Conventions archive: adds the parts that describe the others.
# Variables: LAYOUT, the folder with EchoTrain.nuspec; PACKAGE.
set(types "[Content_Types].xml")  # a name that has to be quoted: brackets are CMake's, too
file(REMOVE_RECURSE ${LAYOUT}/_rels "${LAYOUT}/${types}" ${PACKAGE})
file(GLOB_RECURSE files RELATIVE ${LAYOUT} ${LAYOUT}/*)
list(SORT files)
set(overrides "")
foreach(file ${files})
  string(APPEND overrides "  <Override PartName=\"/${file}\" ContentType=\"application/octet\" />\n")
endforeach()
set(head "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n")
set(schemas http://schemas.openxmlformats.org/package/2006)
file(WRITE "${LAYOUT}/${types}" "${head}<Types xmlns=\"${schemas}/content-types\">
  <Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\" />
${overrides}</Types>
")
file(WRITE ${LAYOUT}/_rels/.rels "${head}<Relationships xmlns=\"${schemas}/relationships\">
  <Relationship Type=\"http://schemas.microsoft.com/packaging/2010/07/manifest\" Target=\"/EchoTrain.nuspec\" Id=\"manifest\" />
</Relationships>
")
execute_process(COMMAND ${CMAKE_COMMAND} -E tar cf ${PACKAGE} --format=zip ${types} _rels/.rels ${files}
                WORKING_DIRECTORY ${LAYOUT} COMMAND_ERROR_IS_FATAL ANY)
