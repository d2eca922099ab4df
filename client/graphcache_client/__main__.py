"""``python -m graphcache_client``: the command line, where the script ``graphcache`` is not on PATH."""

from graphcache_client.cli.app import main

if __name__ == "__main__":
    main()
