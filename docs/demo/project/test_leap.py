from leap import is_leap

for year, expected in [(2024, True), (2023, False), (1900, False), (2000, True)]:
    assert is_leap(year) == expected, f"{year} is a leap year: {is_leap(year)}"
print("ok")
