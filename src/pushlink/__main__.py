"""`python -m pushlink`, where the script of that name is not on the path."""

from pushlink.surfaces.cli import main

if __name__ == "__main__":
    main()
