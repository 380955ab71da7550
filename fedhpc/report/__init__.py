"""From records to tables and plots; imports neither torch nor MPI."""
