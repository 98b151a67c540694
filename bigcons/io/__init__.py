"""Reads users' tables: any source as blocks of rows, and its labels as dense codes."""
