# SPDX-License-Identifier: Apache-2.0
"""Which tenant work belongs to: threads, pools and coroutines."""

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor

import gpushare
import pytest
from gpushare import carry_tenant, current_tenant, tenant_scope


@pytest.fixture
def pair(gpu):
    devices = [gpu.virtual_device(name, memory="1GiB") for name in "ab"]
    return devices


def test_unattributed_work_is_the_scopes(gpu, pair):
    a, b = pair
    assert current_tenant() is None
    with tenant_scope(a.tenant) as tenant:
        assert current_tenant() is tenant is a.tenant
        assert gpu.resolve().tenant_name == "a" and gpu.alloc(100).tenant_name == "a"
        with tenant_scope(b.tenant):
            assert gpu.resolve().tenant_name == "b"
            assert gpu.resolve(a.stream()).tenant_name == "a"  # a stream's binding takes precedence
        assert gpu.resolve().tenant_name == "a"
    assert gpu.resolve().tenant_name == "default"


def test_over_the_scopes_quota(gpu, pair):
    with tenant_scope(pair[0].tenant), pytest.raises(MemoryError) as caught:
        gpu.alloc("2GiB")
    assert caught.value.tenant == "a"


def test_pools(gpu, pair):
    def whose():
        return gpu.resolve().tenant_name

    with ThreadPoolExecutor(1) as pool:
        with tenant_scope(pair[0].tenant):
            assert pool.submit(carry_tenant(whose)).result() == "a"
            assert pool.submit(contextvars.copy_context().run, whose).result() == "a"
            assert pool.submit(whose).result() == "default"
        assert pool.submit(carry_tenant(whose)).result() == "default"


def test_coroutines_have_their_own(gpu, pair):
    async def work(device):
        with tenant_scope(device.tenant):
            for _ in range(10):
                assert gpu.resolve().tenant_name == device.tenant_name
                await asyncio.sleep(0)
            return await asyncio.to_thread(lambda: gpu.resolve().tenant_name)

    async def main():
        return await asyncio.gather(*(work(device) for device in pair * 3))

    assert asyncio.run(main()) == ["a", "b"] * 3


def test_a_tenant_without_a_device(gpu):
    with tenant_scope(gpushare.Tenant(gpu.runtime, "nobody")), pytest.raises(RuntimeError, match="no virtual device"):
        gpu.resolve()


def test_what_is_no_tenant(gpu):
    with pytest.raises(TypeError, match="^tenant: str given"):
        tenant_scope("a")
    tenant = gpushare.Tenant(gpu.runtime, "gone")
    tenant.close()
    with pytest.raises(gpushare.ClosedError), tenant_scope(tenant):
        pass
    assert current_tenant() is None


def test_a_scope_that_is_left_elsewhere(gpu, pair):
    def whose():
        return gpu.resolve().tenant_name

    scope = tenant_scope(pair[0].tenant)
    with pytest.raises(RuntimeError, match="not entered"):
        scope.__exit__(None, None, None)
    contextvars.copy_context().run(scope.__enter__)
    with pytest.raises(ValueError, match="different Context"):
        scope.__exit__(None, None, None)
    assert whose() == "default"  # nothing of it is left on the thread
    with ThreadPoolExecutor(1) as pool:
        scope = tenant_scope(pair[0].tenant)
        pool.submit(contextvars.copy_context().run, scope.__enter__).result()
        with pytest.raises(RuntimeError, match="thread"):
            scope.__exit__(None, None, None)
        assert whose() == "default"
