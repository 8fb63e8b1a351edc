"""python -m weft_ray: the command `weft`, where its folder is not on the PATH (a runtime environment with py_modules)."""

from weft_ray.program import main

main()
