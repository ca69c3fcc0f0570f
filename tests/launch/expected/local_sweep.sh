JAX_LOCAL_DEVICE_IDS=0 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=1 --config.seed=0 '--workdir=DIR/noise_multiplier=1,key=0' --coordinator=localhost:9999 --num_processes=2 --process_id=0 &
JAX_LOCAL_DEVICE_IDS=1 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=1 --config.seed=0 '--workdir=DIR/noise_multiplier=1,key=0' --coordinator=localhost:9999 --num_processes=2 --process_id=1
wait
JAX_LOCAL_DEVICE_IDS=0 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=1 --config.seed=1 '--workdir=DIR/noise_multiplier=1,key=1' --coordinator=localhost:9999 --num_processes=2 --process_id=0 &
JAX_LOCAL_DEVICE_IDS=1 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=1 --config.seed=1 '--workdir=DIR/noise_multiplier=1,key=1' --coordinator=localhost:9999 --num_processes=2 --process_id=1
wait
JAX_LOCAL_DEVICE_IDS=0 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=2.5 --config.seed=0 '--workdir=DIR/noise_multiplier=2.5,key=0' --coordinator=localhost:9999 --num_processes=2 --process_id=0 &
JAX_LOCAL_DEVICE_IDS=1 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=2.5 --config.seed=0 '--workdir=DIR/noise_multiplier=2.5,key=0' --coordinator=localhost:9999 --num_processes=2 --process_id=1
wait
JAX_LOCAL_DEVICE_IDS=0 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=2.5 --config.seed=1 '--workdir=DIR/noise_multiplier=2.5,key=1' --coordinator=localhost:9999 --num_processes=2 --process_id=0 &
JAX_LOCAL_DEVICE_IDS=1 python3 -m episodic_dp train --config=glyphs --config.mechanism.noise_multiplier=2.5 --config.seed=1 '--workdir=DIR/noise_multiplier=2.5,key=1' --coordinator=localhost:9999 --num_processes=2 --process_id=1
