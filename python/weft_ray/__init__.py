"""weft_ray: weft on Ray, and the program itself (weft_ray.program.PROGRAM)."""
