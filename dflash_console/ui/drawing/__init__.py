"""Pure drawing: what is known of a host goes in, lines of (text, ink) pieces come out.

Nothing here knows of Textual or of colours: an ink is a name, and a theme says what it looks like.
"""
