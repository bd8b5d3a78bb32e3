"""Sources of observations, by row and by column: in memory, on disk, on Dask workers."""
