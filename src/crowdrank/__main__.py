"""Run the command line: `python -m crowdrank`."""

from crowdrank.cli.app import main

if __name__ == "__main__":
    main()
