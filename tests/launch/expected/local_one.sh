python3 -m episodic_dp train --config=glyphs --config.steps=10 '--workdir=DIR/my runs'
