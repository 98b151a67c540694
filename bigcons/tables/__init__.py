"""The one way in for what users hold: any table as blocks of rows, and its labels as dense codes."""
