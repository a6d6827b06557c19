# R reads this file at its start (R_PROFILE_USER). Plots become PNG files, one a page, in the directory AGENT_DISPLAY_DIR.
local({
  directory <- Sys.getenv("AGENT_DISPLAY_DIR")
  if (nzchar(directory)) {
    pattern <- file.path(directory, paste0(Sys.getpid(), "-%04d.png"))
    options(device = function(...) {
      type <- if (capabilities("cairo")) "cairo" else getOption("bitmapType")
      grDevices::png(pattern, width = 800, height = 600, type = type)
    })
  }
  # R_PROFILE_USER stands for the user's own file, which R would have read.
  own <- if (file.exists(".Rprofile")) ".Rprofile" else path.expand("~/.Rprofile")
  if (file.exists(own)) sys.source(own, envir = globalenv())
})
