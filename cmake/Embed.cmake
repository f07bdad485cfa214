# Writes OUTPUT, a C++ file that holds the text of FILES as the string_views NAMES of pushpull::page_files.
# Run when one of them has changed (`cmake -DOUTPUT=... "-DFILES=..." "-DNAMES=..." -P Embed.cmake`).
set(text "#include <string_view>\n\nnamespace pushpull::page_files {\n")
foreach(file name IN ZIP_LISTS FILES NAMES)
  file(READ ${file} content)
  string(APPEND text "extern const std::string_view ${name};\nconst std::string_view ${name} = R\"embedded(${content})embedded\";\n")
endforeach()
file(WRITE ${OUTPUT} "${text}}  // namespace pushpull::page_files\n")
