local({
  code <- @CODE@
  home <- @CWD@
  setwd(home)
  real <- normalizePath(home)
  # Where the home is a link, the kernel knows its other name alone.
  assign("getwd", envir = globalenv(), function() {
    now <- base::getwd()
    if (startsWith(now, real)) paste0(home, substring(now, nchar(real) + 1)) else now
  })
  directory <- Sys.getenv("AGENT_DISPLAY_DIR")
  shown <- 0
  show <- function(value) {
    text <- paste(utils::capture.output(print(value)), collapse = "\n")
    if (!nzchar(text) || !nzchar(directory)) return(invisible())
    shown <<- shown + 1
    text <- encodeString(gsub("[\001-\010\013\014\016-\037]", " ", text), quote = '"')
    text <- sprintf('{"is_main":true,"data":{"text/plain":%s}}', text)
    writeLines(text, file.path(directory, sprintf("value-%04d.bundle.json", shown)), useBytes = TRUE)
  }
  for (expression in parse(text = code, keep.source = FALSE)) {
    value <- withVisible(eval(expression, globalenv()))
    if (value$visible) show(value$value)
  }
})
