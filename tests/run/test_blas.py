"""The threads of BLAS, which belong to the process."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from bigcons.run.engine import one_thread


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread__holds_until_the_last_of_several_threads_leaves():
    with one_thread(user_api="blas"):  # which loads the libraries
        pass
    if not any(pool.get("threading_layer") == "pthreads" for pool in threadpool_info()):
        pytest.skip("no library counts its threads for the process")
    with ThreadPoolExecutor(1) as one:  # a thread that lives would keep others from setting limits
        before = one.submit(threadpool_limits, 2, "blas").result()
    with ThreadPoolExecutor(1) as a, ThreadPoolExecutor(1) as b:
        assert blas_threads() == {2}
        blocks = [one_thread(user_api="blas") for _ in range(2)]
        for thread, block in zip((a, b), blocks, strict=True):
            thread.submit(block.__enter__).result()
        assert blas_threads() == {1}
        a.submit(blocks[0].__exit__, None, None, None).result()
        assert blas_threads() == {1}
        with one_thread(user_api="blas"):
            assert blas_threads() == {1}
        b.submit(blocks[1].__exit__, None, None, None).result()
        assert blas_threads() == {2}
        with one_thread(user_api="blas"):
            assert blas_threads() == {1}
        assert blas_threads() == {2}
    with ThreadPoolExecutor(1) as one:
        one.submit(before.restore_original_limits).result()
