"""What people look at: pictures, films, pages."""
